package strictyaml_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"
	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

func shopSchema(t testing.TB) (text []byte, schema *jsonschema.Schema) {
	text, err := strictyaml.Schema(shopKind(), reflect.TypeFor[shop]())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("shop.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err = c.Compile("shop.json") // this validates it against draft 7 as well
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return text, schema
}

// validate returns the error that a schema finds in a YAML file.
func validate(t *testing.T, schema *jsonschema.Schema, text string) error {
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(plain(v))
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(encoded)))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(instance)
}

// plain turns all keys of maps into texts.
func plain(v any) any {
	switch v := v.(type) {
	case map[any]any:
		m := map[string]any{}
		for key, value := range v {
			m[fmt.Sprint(key)] = plain(value)
		}
		return m
	case map[string]any:
		for key, value := range v {
			v[key] = plain(value)
		}
	case []any:
		for i, value := range v {
			v[i] = plain(value)
		}
	}
	return v
}

func TestSchema(t *testing.T) {
	_, schema := shopSchema(t)
	for _, c := range []struct{ yaml, wrong string }{
		{yaml: `{name: a, end: true, desk: {staff: 5, bell: }}`},
		{yaml: `{name: a, desk: }`},
		{yaml: `{name: 5, shelves: [{label: true}]}`},
		{yaml: `{name: a, shelves: [{label: a, shelves: [{label: b, shelves: [{label: c}]}]}]}`},
		{yaml: `{name: a, shelves: [{label: a, count: 5, weight: 1, rank: -128, colour: red, open: false, wait: 1m30.5s,
			tags: [a, 5], colours: [red, blue], codes: [ABC], notes: {a: [1, {b: c}]}, lock: {key: a, light: true}, row: 40}]}`},
		{yaml: `{name: a, shelves: [{label: a, wait: "0"}]}`},
		{yaml: `{name: a, desk: {bell: {song: do.re}}}`},
		{yaml: `{name: a, desk: {bell: {song: [do, 5]}}}`},

		{`{desk: {bell: {sign: {tags: []}}}}`, "missing property 'text'"},
		{`{name: a, nam: b}`, "additional properties 'nam' not allowed"},
		{`{name: [a]}`, "at '/name': got array"},
		{`{name: a, shelves: {label: a}}`, "got object, want array"},
		{`{name: a, shelves: [{label: a, shelves: [{label: a, shelves: [{colour: pink}]}]}]}`,
			"/shelves/0/shelves/0/shelves/0"},
		{`{name: a, shelves: [{label: a, colour: pink}]}`, "must be one of 'red', 'green', 'blue'"},
		{`{name: a, shelves: [{label: a, colours: [pink]}]}`, "must be one of 'red', 'green', 'blue'"},
		{`{name: a, shelves: [{label: a, count: -1}]}`, "minimum: got -1, want 0"},
		{`{name: a, shelves: [{label: a, weight: 1001}]}`, "maximum: got 1,001, want 1,000"},
		{`{name: a, shelves: [{label: a, rank: 128}]}`, "maximum: got 128, want 127"},
		{`{name: a, shelves: [{label: a, count: "5"}]}`, "got string, want integer"},
		{`{name: a, shelves: [{label: a, open: maybe}]}`, "got string, want boolean"},
		{`{name: a, shelves: [{label: a, wait: soon}]}`, "does not match pattern"},
		{`{name: a, shelves: [{label: a, wait: 30}]}`, "got number, want string"},
		{`{name: a, shelves: [{label: a, tags: []}]}`, "minItems: got 0, want 1"},
		{`{name: a, shelves: [{label: a, tags: a}]}`, "got string, want array"},
		{`{name: a, shelves: [{label: a, notes: none}]}`, "got string, want object"},
		{`{name: a, shelves: [{label: a, lock: {}}]}`, "oneOf"},
		{`{name: a, shelves: [{label: a, lock: {key: a, digit: 5}}]}`, "oneOf"},
		{`{name: a, shelves: [{label: a, lock: {key: a, light: true, noise: true}}]}`, "oneOf"},
		{`{name: a, desk: {bell: {song: []}}}`, "minItems: got 0, want 1"},
		{`{name: a, desk: {bell: {song: {do: re}}}}`, "got object"},
		{`{name: a, shelves: [{label: a, ignored: 5}]}`, "additional properties"},
	} {
		switch err := validate(t, schema, c.yaml); {
		case c.wrong == "" && err != nil:
			t.Errorf("%s\n%v", c.yaml, err)
		case c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)):
			t.Errorf("%s\ngot %v\nwant an error with %q", c.yaml, err, c.wrong)
		}
	}
}

// Decode reads every file of testdata that the schema accepts.
func TestTheSchemaIsAtLeastAsStrict(t *testing.T) {
	_, schema := shopSchema(t)
	for _, path := range archives(t) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.Files {
			var v any
			if !strings.HasSuffix(f.Name, ".yaml") || yaml.Unmarshal(f.Data, &v) != nil {
				continue // not YAML
			}
			_, doc := decode(string(f.Data))
			passes := validate(t, schema, string(f.Data)) == nil && !slices.Contains(beyondSchemas(), f.Name)
			if passes && doc.Problems().HasErrors() {
				t.Errorf("%s: Decode reports problems, the schema does not:\n%s%s", f.Name, f.Data, doc.Problems())
			}
		}
	}
}

// beyondSchemas are the cases that no JSON Schema can find: a schema sees values, not how they are written.
func beyondSchemas() []string {
	return []string{
		"second-document.yaml", "merge-after-the-key.yaml", "merge-replaces-a-map.yaml", "metadata.yaml", "tag.yaml",
	}
}

// Editors show the descriptions, defaults and examples of the tags.
func TestSchemaAnnotations(t *testing.T) {
	text, _ := shopSchema(t)
	var schema struct {
		Title       string
		Properties  map[string]map[string]any
		Definitions map[string]struct {
			Title      string
			Properties map[string]map[string]any
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	shelf := schema.Definitions["strictyaml_test.shelf"]
	got := map[string]any{
		"title": schema.Title, "title of a shelf": shelf.Title,
		"name": schema.Properties["name"]["description"], "shelves": schema.Properties["shelves"]["description"],
		"words": shelf.Properties["steps"]["description"], "default in words": shelf.Properties["steps"]["default"],
		"count":  shelf.Properties["count"]["default"],
		"open":   shelf.Properties["open"]["default"],
		"colour": shelf.Properties["colour"]["default"],
		"weight": shelf.Properties["weight"]["examples"], "tags": shelf.Properties["tags"]["examples"],
		"notes": shelf.Properties["notes"]["examples"],
		"wait":  shelf.Properties["wait"]["examples"],
	}
	want := map[string]any{
		"title": "shop file", "title of a shelf": "a shelf",
		"name": "What the shop is called.", "shelves": "What stands in it.",
		"words": "How many things. Default: as many as fit.", "default in words": nil,
		"count": 10.0, "open": true, "colour": "red",
		"weight": []any{50.0}, "tags": []any{[]any{"new", "blue"}}, "notes": []any{map[string]any{"floor": "first"}},
		"wait": []any{"200ms"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want (-) and got (+):\n%s", diff)
	}
}
