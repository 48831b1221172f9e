package deploy

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// chart returns the directory of the Helm chart.
func chart(t *testing.T) string { t.Helper(); return path(t, "deploy", "helm", "extauthz") }

// helm runs helm without the configuration of the user who runs the test.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "helm", ""), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(),
		"HELM_DATA_HOME="+t.TempDir())
	return output(cmd)
}

// render runs `helm template` for a release named `limits`.
func render(t *testing.T, args ...string) ([]byte, error) {
	t.Helper()
	manifests, err := helm(t, append([]string{"template", "limits", chart(t), "--namespace", "extauthz"}, args...)...)
	return []byte(manifests), err
}

// TestChart renders the chart with each file of values in ci/, checks the objects, and runs the pod.
func TestChart(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(chart(t), "ci", "*-values.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no values in ci/ (%v)", err)
	}
	given := operatorsObjects(t)
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

// TestPackagedChart checks that the packaged chart has the files that are links in the repository: alerts, dashboards
// and the example.
func TestPackagedChart(t *testing.T) {
	for _, link := range []string{"alerts.yaml", "dashboards", "example-rules.yaml"} {
		if _, err := os.Readlink(filepath.Join(chart(t), "files", link)); err != nil {
			t.Errorf("files/%s must be a symbolic link (sed -i replaces a link by a copy): %v", link, err)
		}
	}
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
		t.Error("the package and the directory render different manifests")
	}
	o := decode(t, []byte(fromPackage))
	for _, kind := range []string{"PrometheusRule", "ServiceMonitor", "HorizontalPodAutoscaler"} {
		if !slices.Contains(o.kinds, kind) {
			t.Errorf("everything-values.yaml makes no %s, only %v", kind, o.kinds)
		}
	}
	var alerts map[string]any
	mustUnmarshal(t, read(t, path(t, "deploy", "observability", "prometheus", "rules", "extauthz.yaml")), &alerts)
	if diff := cmp.Diff(alerts, o.alerts); diff != "" {
		t.Errorf("the PrometheusRule has other alerts than deploy/observability (-want +got):\n%s", diff)
	}
	dashboards, err := filepath.Glob(path(t, "deploy", "observability", "grafana", "dashboards", "*.json"))
	if err != nil || len(dashboards) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	for _, file := range dashboards {
		if o.configMaps["limits-extauthz-dashboards"].Data[filepath.Base(file)] != string(read(t, file)) {
			t.Errorf("the ConfigMap of dashboards has another %s", filepath.Base(file))
		}
	}
}

// TestExampleLimitsFailedAuthentication has API keys and no rules of the operator. The default rules of the chart
// refuse requests without a key, and limit such requests by address.
func TestExampleLimitsFailedAuthentication(t *testing.T) {
	manifests, err := render(t, "--values", filepath.Join(chart(t), "ci", "keys-values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := decode(t, manifests)
	root := o.rootFiles(t, operatorsObjects(t))
	s := testenv.Service(t, binary, append(o.variables(root), "DEBUG_HOST=127.0.0.1", "DRAIN_DELAY=0s")...)
	refused := 0
	for range 1000 { // the limit is reached if the test sends more than one request in two seconds
		resp, err := http.Get("http://" + testenv.Loopback(s.HTTPPort) + "/check/")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusTooManyRequests {
			break
		}
		if refused++; resp.StatusCode != http.StatusUnauthorized {
			t.Fatalf("request %d without a key: %s, want 401", refused, resp.Status)
		}
	}
	if refused < 30 || refused == 1000 {
		t.Errorf("%d requests without a key got 401 before the first 429, want at least 30 and fewer than 1000", refused)
	}
}

// TestNotes checks the notes that helm prints after an installation: names and ports, the curl line, and Envoy's
// cluster.
func TestNotes(t *testing.T) {
	printed, err := helm(t, "install", "limits", chart(t), "--namespace", "extauthz", "--dry-run=client")
	if err != nil {
		t.Fatal(err)
	}
	manifests, notes, found := strings.Cut(printed, "NOTES:\n")
	if !found {
		t.Fatalf("helm printed no notes:\n%s", printed)
	}
	_, manifests, _ = strings.Cut(manifests, "MANIFEST:\n")
	o := decode(t, []byte(manifests))
	for _, name := range []string{"limits-extauthz", "limits-extauthz-headless"} {
		if _, ok := o.services[name]; !ok || !strings.Contains(notes, name) {
			t.Errorf("%s: is a Service: %v; is in the notes: %v; want both", name, ok, strings.Contains(notes, name))
		}
	}

	s := testenv.Service(t, binary, append(o.variables(o.rootFiles(t, nil)), "DEBUG_HOST=127.0.0.1", "DRAIN_DELAY=0s")...)
	curl := regexp.MustCompile(`(?m)curl -i localhost:8080(/json) -d '(.*)'$`).FindStringSubmatch(notes)
	if curl == nil {
		t.Fatalf("the notes have no curl line:\n%s", notes)
	}
	resp, err := http.Post("http://"+testenv.Loopback(s.HTTPPort)+curl[1], "application/json", strings.NewReader(curl[2]))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "per-address") {
		t.Errorf("the curl line gets %s, %s (%v); want 200 and the rule per-address", resp.Status, body, err)
	}

	cluster := regexp.MustCompile(`(?ms)^  - name: extauthz\n.*?\n\n`).FindString(notes)
	if !strings.Contains(cluster, "address: limits-extauthz-headless.extauthz.svc.cluster.local, port_value: 8081") {
		t.Errorf("the cluster does not have the address of the headless Service:\n%s", cluster)
	}
	if err := testenv.ValidateEnvoy(t, "static_resources:\n  clusters:\n"+cluster); err != nil {
		t.Error(err)
	}
}
