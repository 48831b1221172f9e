package deploy

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/extauthz/extauthz/test/testenv"
)

// build does what `kubectl kustomize` does.
func build(dir string) ([]byte, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, err
	}
	return resources.AsYaml()
}

// kustomization is a kustomization of the repository.
type kustomization struct {
	dir string
	types.Kustomization
}

// kustomizations returns all kustomizations of the repository.
func kustomizations(t *testing.T) (all []kustomization) {
	t.Helper()
	for _, file := range yamlFiles(t) {
		if filepath.Base(file) != "kustomization.yaml" {
			continue
		}
		k := kustomization{dir: filepath.Dir(file)}
		if err := yaml.UnmarshalStrict(read(t, file), &k.Kustomization); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		all = append(all, k)
	}
	return all
}

func (k kustomization) component() bool { return k.Kind == types.ComponentKind }

// in returns the path of the directory in the repository.
func (k kustomization) in(t *testing.T) string { t.Helper(); return relative(t, path(t), k.dir) }

// neededComponents maps a component to the one that it requires, which must precede it.
var neededComponents = map[string]string{"api-keys-file": "api-key-secret", "autoscaling": "redis"}

// TestKustomizations builds every kustomization of the repository. It builds the components of deploy/kustomize with
// the base; other components must be part of a kustomization.
func TestKustomizations(t *testing.T) {
	all := kustomizations(t)
	given := operatorsObjects(t)
	used := map[string]bool{}
	for _, k := range all {
		for _, c := range k.Components {
			used[filepath.Join(k.dir, c)] = true
		}
	}
	for _, k := range all {
		t.Run(k.in(t), func(t *testing.T) {
			dir := k.dir
			switch {
			case k.component() && strings.HasPrefix(k.in(t), "deploy/kustomize/components/"):
				components := "COMPONENTS/" + filepath.Base(k.dir)
				if other, needs := neededComponents[filepath.Base(k.dir)]; needs {
					components = "COMPONENTS/" + other + ", " + components
				}
				dir = overlay(t, `{resources: [BASE], components: [`+components+`]}`)
			case k.component():
				if !used[k.dir] {
					t.Error("no kustomization of the repository uses this component, so no test covers it")
				}
				return
			}
			manifests, err := build(dir)
			if err != nil {
				t.Fatal(err)
			}
			if err := conforms(t, manifests); err != nil {
				t.Error(err)
			}
			k.checkTargets(t, manifests)
			if o, found := find(t, manifests); found {
				o.fitTogether(t)
				o.run(t, given)
			}
		})
	}
}

// checkTargets checks that the targets of patches exist. A patch whose target matches nothing has no effect and no
// error.
func (k kustomization) checkTargets(t *testing.T, manifests []byte) {
	t.Helper()
	var names []string
	for _, document := range documents(manifests) {
		var object struct {
			Kind     string
			Metadata struct{ Name string }
		}
		mustUnmarshal(t, document, &object)
		names = append(names, object.Kind+" "+object.Metadata.Name)
	}
	for _, p := range k.Patches {
		if p.Target == nil {
			continue // the patch names its object, and kustomize requires that it exists
		}
		name := p.Target.Name
		if name == "" {
			name = ".*"
		}
		target := regexp.MustCompile("^(" + p.Target.Kind + ") (" + name + ")$")
		if !slices.ContainsFunc(names, target.MatchString) {
			t.Errorf("a patch has the target %v, which matches none of %v", p.Target, names)
		}
	}
}

// overlay makes a kustomization and returns its directory. In the text, BASE and COMPONENTS mean the directories of the
// repository.
func overlay(t *testing.T, kustomization string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root := relative(t, dir, path(t, "deploy", "kustomize"))
	text := strings.NewReplacer("BASE", root+"/base", "COMPONENTS", root+"/components").Replace(kustomization)
	write(t, filepath.Join(dir, "kustomization.yaml"), []byte(text))
	return dir
}

func relative(t *testing.T, from, to string) string {
	t.Helper()
	path, err := filepath.Rel(from, to)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.ToSlash(path)
}

// TestMistakesInOverlays checks that a misspelt word in an overlay is an error that names it. The error comes from
// kustomize, from the API server, or from the service at its start, before the running replicas are replaced.
func TestMistakesInOverlays(t *testing.T) {
	kustomize := func(_ *testing.T, dir string) error { _, err := build(dir); return err }
	apiServer := func(t *testing.T, dir string) error {
		manifests, err := build(dir)
		if err != nil {
			t.Fatal(err)
		}
		return conforms(t, manifests)
	}
	start := func(t *testing.T, dir string) error {
		manifests, err := build(dir)
		if err != nil {
			t.Fatal(err)
		}
		o := decode(t, manifests)
		serve := exec.Command(binary)
		serve.Env = append(o.variables(o.rootFiles(t, nil)), "DEBUG_HOST=127.0.0.1",
			fmt.Sprintf("PORT=%d", testenv.FreePort(t)), fmt.Sprintf("GRPC_PORT=%d", testenv.FreePort(t)),
			fmt.Sprintf("DEBUG_PORT=%d", testenv.FreePort(t)))
		_, err = output(serve)
		return err
	}
	patch := func(metadata, spec string) string {
		return `patches: [{patch: "{apiVersion: apps/v1, kind: Deployment, metadata: ` + metadata + `, spec: ` + spec + `}"}]`
	}
	literals := func(configMap, literal string) string {
		return `configMapGenerator: [{name: ` + configMap + `, behavior: merge, literals: [` + literal + `]}]`
	}
	for name, c := range map[string]struct {
		addition string // to a kustomization with the base
		run      func(*testing.T, string) error
		want     string
	}{
		"a field of the kustomization": {`component: [COMPONENTS/redis]`, kustomize, `"component"`},
		"a component":                  {`components: [COMPONENTS/reddis]`, kustomize, `components/reddis`},
		"autoscaling without Redis":    {`components: [COMPONENTS/autoscaling]`, kustomize, `extauthz-redis`},
		"autoscaling before Redis": {
			`components: [COMPONENTS/autoscaling, COMPONENTS/redis]`, kustomize, `extauthz-redis`},
		"a patched object": {patch(`{name: extautz}`, `{replicas: 2}`), kustomize, `extautz`},
		"a ConfigMap":      {literals(`extauthz-setings`, `LOG_LEVEL=DEBUG`), kustomize, `extauthz-setings`},
		"a field":          {patch(`{name: extauthz}`, `{replica: 2}`), apiServer, `'replica' not allowed`},
		"a field of the pod": {patch(`{name: extauthz}`, `{template: {spec: {nodeSelektor: {a: b}}}}`),
			apiServer, `'nodeSelektor' not allowed`},
		"a setting": {literals(`extauthz-settings`, `LGO_LEVEL=DEBUG`),
			start, `LGO_LEVEL is not a setting: did you mean LOG_LEVEL?`},
		"a setting's value": {literals(`extauthz-settings`, `LOG_LEVEL=VERBOSE`),
			start, `LOG_LEVEL: want DEBUG, INFO, WARN or ERROR`},
		"a rule": {literals(`extauthz-rules`, `"more.yaml=domain: more\ndescriptor: []\n"`),
			start, "did you mean `descriptors`?"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.run(t, overlay(t, `{resources: [BASE], `+c.addition+`}`))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s\ngot:  %v\nwant an error with: %s", c.addition, err, c.want)
			}
		})
	}
}
