package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// chart is the directory of the Helm chart.
func chart(t *testing.T) string { t.Helper(); return path(t, "deploy", "helm", "extauthz") }

// helm runs helm with nothing of whoever runs the test.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "helm", ""), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	return output(cmd)
}

// render is `helm template` of a release named `limits`.
func render(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	manifests, err := helm(t, append([]string{"template", "limits", chart(t), "--namespace", "extauthz"}, args...)...)
	return []byte(manifests), err
}

// Every file of values in ci/ is a way in which the chart is installed.
func TestChart(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart(t), "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in ci/ (%v)", err)
	}
	given := operatorsSecrets(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), "-values.yaml"), func(t *testing.T) {
			if out, err := helm(t, "lint", "--strict", chart(t), "--values", file); err != nil {
				t.Errorf("helm lint: %v\n%s", err, out)
			}
			manifests, err := render(t, "--values", file)
			if err != nil {
				t.Fatal(err)
			}
			if err := conforms(t, manifests); err != nil {
				t.Error(err)
			}
			o := decode(t, manifests)
			o.fitTogether(t)
			o.run(t, given)
		})
	}
}

// The chart that is packaged has the files that are links in the repository: alerts, dashboards, the example.
func TestPackagedChart(t *testing.T) {
	dir := t.TempDir()
	if out, err := helm(t, "package", chart(t), "--destination", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(packages) != 1 {
		t.Fatalf("helm package made %v, want one (%v)", packages, err)
	}
	everything := filepath.Join(chart(t), "ci", "everything-values.yaml")
	fromPackage, err := helm(t, "template", "limits", packages[0], "--namespace", "extauthz", "--values", everything)
	if err != nil {
		t.Fatal(err)
	}
	fromDirectory, err := render(t, "--values", everything)
	if err != nil {
		t.Fatal(err)
	}
	if fromPackage != string(fromDirectory) {
		t.Error("the package renders other manifests than the directory")
	}
	o := decode(t, []byte(fromPackage))
	for _, kind := range []string{"PrometheusRule", "ServiceMonitor", "HorizontalPodAutoscaler"} {
		if !slices.Contains(o.kinds, kind) {
			t.Errorf("everything-values.yaml makes no %s, only %v", kind, o.kinds)
		}
	}
	dashboards, err := filepath.Glob(path(t, "deploy", "observability", "grafana", "dashboards", "*.json"))
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	for _, file := range dashboards {
		if o.configMaps["limits-extauthz-dashboards"].Data[filepath.Base(file)] != string(read(t, file)) {
			t.Errorf("the dashboard %s is not as it was in the ConfigMap of dashboards", filepath.Base(file))
		}
	}
}
