package file

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestSchemaAcceptsTheExamples validates every rule file of the repository.
func TestSchemaAcceptsTheExamples(t *testing.T) {
	schema, root := compiledSchema(t), testenv.RepoRoot(t)
	count := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".yaml" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte("\n"), text...), []byte("\ndomain: ")) {
			return err
		}
		count++
		if err := validate(t, schema, text); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		return nil
	})
	if err != nil || count < 10 {
		t.Errorf("%d rule files: %v", count, err)
	}
}

// TestSchemaFindsMistakes makes one mistake at a time.
func TestSchemaFindsMistakes(t *testing.T) {
	schema := compiledSchema(t)
	text := testenv.RepoFile(t, "internal/service/sample/sample.yaml")
	for _, c := range []struct{ before, after string }{
		{"\nauthz:", "\nauth:"},
		{"domain: ", "domains: "},
		{"api_key: ", "api_keys: "},
		{"requests_per_unit: ", "requests_per_unit: -"},
		{"unit: ", "unit: semi"},
		{"\ndescriptors:", "\ndescriptors: none\nmore:"},
	} {
		if !strings.Contains(text, c.before) {
			t.Fatalf("the sample has no %q", c.before)
		}
		if err := validate(t, schema, []byte(strings.Replace(text, c.before, c.after, 1))); err == nil {
			t.Errorf("the sample with %q passes", c.after)
		}
	}
}

func compiledSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("rules.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("rules.json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func validate(t *testing.T, schema *jsonschema.Schema, text []byte) error {
	t.Helper()
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(encoded))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(instance)
}
