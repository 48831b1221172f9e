package deploy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// The sources of schemas: Go modules that contain them. Go downloads and verifies these modules.
const (
	kubernetesModule = "k8s.io/kubernetes@v1.36.3"
	swagger          = "api/openapi-spec/swagger.json"
	objectMeta       = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
)

// definitionsOf has the paths of CustomResourceDefinitions in modules: a file, or a directory and all directories below
// it. Those of Envoy Gateway include the Gateway API.
var definitionsOf = map[string]string{
	"istio.io/api@v1.31.1":                                       "kubernetes/customresourcedefinitions.gen.yaml",
	"github.com/envoyproxy/gateway@v1.9.1":                       "charts/gateway-helm/charts/crds/crds",
	"github.com/prometheus-operator/prometheus-operator@v0.85.0": "example/prometheus-operator-crd",
}

// schema is a JSON schema.
type schema = map[string]any

// writeSchemas makes a directory of JSON schemas, one for each version of each kind. They are stricter than the
// originals: an unknown field is a mistake, as it is for the API server.
func writeSchemas(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	places, err := download()
	if err != nil {
		return err
	}
	definitions, err := kubernetesDefinitions(places[kubernetesModule])
	if err != nil {
		return err
	}
	for name, definition := range definitions {
		for _, kind := range kindsOf(definition) {
			if err := kind.write(dir, schema{"$ref": "#/definitions/" + name}, definitions); err != nil {
				return err
			}
		}
	}
	for module, place := range definitionsOf {
		if err := writeCustomSchemas(dir, filepath.Join(places[module], place), definitions); err != nil {
			return fmt.Errorf("%s: %w", module, err)
		}
	}
	return nil
}

// download returns the directories of the modules.
func download() (map[string]string, error) {
	args := []string{"mod", "download", "-json", kubernetesModule}
	for module := range definitionsOf {
		args = append(args, module)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = os.TempDir() // outside of this module, which does not require them
	out, err := output(cmd)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	places := map[string]string{}
	for decoder := json.NewDecoder(strings.NewReader(out)); ; {
		var module struct{ Path, Version, Dir string }
		if err := decoder.Decode(&module); errors.Is(err, io.EOF) {
			return places, nil
		} else if err != nil {
			return nil, err
		}
		places[module.Path+"@"+module.Version] = module.Dir
	}
}

// kubernetesDefinitions returns the types of Kubernetes' own objects and of their parts, by name.
func kubernetesDefinitions(module string) (map[string]schema, error) {
	content, err := os.ReadFile(filepath.Join(module, swagger))
	if err != nil {
		return nil, err
	}
	var api struct{ Definitions map[string]schema }
	if err := json.Unmarshal(content, &api); err != nil {
		return nil, err
	}
	for name, definition := range api.Definitions {
		api.Definitions[name] = strict(definition)
	}
	// In the schema, a quantity is a string. The API server also accepts a number: `cpu: 1`.
	api.Definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"]["type"] = []any{"string", "number"}
	return api.Definitions, nil
}

// writeCustomSchemas makes the schemas of all CustomResourceDefinitions of a file or directory.
func writeCustomSchemas(dir, place string, definitions map[string]schema) error {
	return filepath.WalkDir(place, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(file) != ".yaml" {
			return err
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, document := range documents(content) {
			var crd struct {
				Kind string
				Spec struct {
					Group    string
					Names    struct{ Kind string }
					Versions []struct {
						Name   string
						Schema struct{ OpenAPIV3Schema schema }
					}
				}
			}
			if err := yaml.Unmarshal(document, &crd); err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if crd.Kind != "CustomResourceDefinition" {
				continue
			}
			for _, v := range crd.Spec.Versions {
				root := strict(v.Schema.OpenAPIV3Schema)
				properties := root["properties"].(schema)
				properties["metadata"] = schema{"$ref": "#/definitions/" + objectMeta}
				properties["apiVersion"], properties["kind"] = schema{"type": "string"}, schema{"type": "string"}
				if err := (kind{crd.Spec.Group, v.Name, crd.Spec.Names.Kind}).write(dir, root, definitions); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// kind is a kind of object in one version.
type kind struct{ group, version, kind string }

// kindsOf returns the kinds that a definition describes. It returns none for a part of objects.
func kindsOf(definition schema) (kinds []kind) {
	list, _ := definition["x-kubernetes-group-version-kind"].([]any)
	for _, one := range list {
		of := one.(schema)
		kinds = append(kinds, kind{of["group"].(string), of["version"].(string), of["kind"].(string)})
	}
	return kinds
}

// schemaFile is kubeconform's pattern for the file name of a schema. For core objects, the group is the version.
const schemaFile = "{{.Group}}_{{.ResourceKind}}_{{.ResourceAPIVersion}}.json"

func (k kind) write(dir string, root schema, definitions map[string]schema) error {
	group := k.group
	if group == "" {
		group = k.version
	}
	whole := maps.Clone(root)
	whole["$schema"] = "http://json-schema.org/draft-07/schema#"
	whole["definitions"] = neededBy(root, definitions)
	content, err := json.Marshal(whole)
	if err != nil {
		return err
	}
	name := strings.NewReplacer("{{.Group}}", group, "{{.ResourceKind}}", strings.ToLower(k.kind),
		"{{.ResourceAPIVersion}}", k.version).Replace(schemaFile)
	return os.WriteFile(filepath.Join(dir, name), content, 0o600)
}

// neededBy returns the definitions that a schema uses, directly and indirectly.
func neededBy(root any, definitions map[string]schema) map[string]schema {
	needed := map[string]schema{}
	var visit func(node any)
	visit = func(node any) {
		switch node := node.(type) {
		case []any:
			for _, item := range node {
				visit(item)
			}
		case schema:
			if ref, ok := node["$ref"].(string); ok {
				name := strings.TrimPrefix(ref, "#/definitions/")
				if needed[name] == nil {
					needed[name] = definitions[name]
					visit(definitions[name])
				}
			}
			for _, value := range node {
				visit(value)
			}
		}
	}
	visit(root)
	return needed
}

// strict returns a schema of the same objects that refuses unknown fields. It omits descriptions.
func strict(s schema) schema {
	out := schema{}
	for key, value := range s {
		switch key {
		case "description", "default", "example":
		case "properties":
			properties := schema{}
			for name, property := range value.(schema) {
				properties[name] = strict(property.(schema))
			}
			out[key] = properties
		case "items", "additionalProperties":
			if inner, ok := value.(schema); ok {
				value = strict(inner)
			}
			out[key] = value
		default: // also anyOf and similar keywords, which list only some of the fields above
			out[key] = value
		}
	}
	_, open := s["additionalProperties"]
	if s["properties"] != nil && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	if s["format"] == "int-or-string" || s["x-kubernetes-int-or-string"] == true {
		out["type"] = []any{"string", "integer"}
	}
	if s["nullable"] == true {
		out["type"] = []any{s["type"], "null"}
	}
	return out
}

// documents returns the documents of a YAML stream.
func documents(stream []byte) (parts [][]byte) {
	for part := range bytes.SplitSeq(append([]byte("\n"), stream...), []byte("\n---")) {
		if len(bytes.TrimSpace(part)) > 0 {
			parts = append(parts, append(part, '\n'))
		}
	}
	return parts
}
