// Package envoygateway tests the examples of envoy-gateway/ without a cluster. Envoy Gateway's own translator reads
// them, and an Envoy runs the result.
package envoygateway

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/extauthz/extauthz/test/testenv"
)

// manifest is an object of Kubernetes.
type manifest map[string]any

// String returns kind, namespace and name: "Service extauthz/extauthz".
func (m manifest) String() string {
	kind, _ := m["kind"].(string)
	metadata, _ := m["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	if namespace, ok := metadata["namespace"].(string); ok {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// group returns the API group: "gateway.networking.k8s.io".
func (m manifest) group() string {
	version, _ := m["apiVersion"].(string)
	group, _, _ := strings.Cut(version, "/")
	return group
}

// parse reads the objects of a file of manifests.
func parse(t *testing.T, text string) []manifest {
	t.Helper()
	var manifests []manifest
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for {
		var m map[string]any // not manifest, because then objects in it would have that type, too
		err := decoder.Decode(&m)
		if errors.Is(err, io.EOF) {
			return manifests
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		manifests = append(manifests, m)
	}
}

// edit changes a file of envoy-gateway/.
type edit struct{ file, before, after string }

// example returns the objects of the example after its files have been applied in their order. The file policy has
// the policy.
func example(t *testing.T, policy string, edits ...edit) []manifest {
	t.Helper()
	files := []string{"gateway.yaml", "application.yaml", "extauthz.yaml"}
	if !slices.Contains(files, policy) {
		files = append(files, policy)
	}
	manifests := service(t)
	for _, file := range files {
		text := testenv.RepoFile(t, "envoy-gateway/"+file)
		for _, e := range edits {
			if e.file != file {
				continue
			}
			if n := strings.Count(text, e.before); n != 1 {
				t.Fatalf("%s has %q %d times, want it once", file, e.before, n)
			}
			text = strings.Replace(text, e.before, e.after, 1)
		}
		for _, m := range parse(t, text) {
			manifests = apply(manifests, m)
		}
	}
	return manifests
}

// apply does what `kubectl apply` does: an object replaces the one with the same name.
func apply(manifests []manifest, m manifest) []manifest {
	for i := range manifests {
		if manifests[i].String() == m.String() {
			manifests[i] = m
			return manifests
		}
	}
	return append(manifests, m)
}

// service returns the objects that `kubectl apply -k envoy-gateway/service` makes, and their namespace.
func service(t *testing.T) []manifest {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), filepath.Join(testenv.RepoRoot(t), "envoy-gateway", "service"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := built.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return append(parse(t, string(text)), manifest{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "extauthz"},
	})
}

// inCluster returns the manifests that Envoy Gateway reads, as the API server would return them: a Service has an
// address. The address does not matter, because xdsResources replaces it.
func inCluster(manifests []manifest) []manifest {
	var read []manifest
	for _, m := range manifests {
		switch kind := m["kind"]; {
		case kind == "Service":
			spec, _ := m["spec"].(map[string]any)
			if _, ok := spec["clusterIP"]; !ok {
				spec["clusterIP"] = "192.0.2.1"
			}
			read = append(read, m)
		case kind == "Namespace", strings.HasPrefix(m.group(), "gateway."):
			read = append(read, m)
		}
	}
	return read
}

// text writes manifests as one file.
func text(t *testing.T, manifests []manifest) string {
	t.Helper()
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	for _, m := range manifests {
		if err := encoder.Encode(m); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}
