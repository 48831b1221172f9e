package strictyaml

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Schema returns the JSON Schema of a kind of file that is read into a type. It is draft 7, which every editor reads.
// It has the keys with their types, words and bounds. The tags doc, default and example describe them. required:"true"
// marks a key that a map needs. Keys with the same tag oneof exclude each other: a map needs one of them, or at most
// one if ",optional" follows the name of the group.
//
// Decode also takes yes for true, keys without a value, and words in upper case if their type does.
func Schema(kind *Kind, root reflect.Type) ([]byte, error) {
	sections := kind.sections(kind.section(root, nil))
	definitions := map[string]any{} // the maps below the root, by the names of their types
	for _, s := range slices.Backward(sections[1:]) {
		definitions[s.Type.String()] = s.schema() // the first section of a type is written last and stays
	}
	whole := sections[0].schema()
	whole["$schema"] = "http://json-schema.org/draft-07/schema#"
	whole["title"] = kind.Noun
	whole["definitions"] = definitions
	whole["patternProperties"] = map[string]any{"^" + anchorsKey: true}
	return json.MarshalIndent(whole, "", "  ")
}

// schema returns the JSON Schema of a map.
func (s *section) schema() map[string]any {
	properties := map[string]any{}
	var required, groups []string
	members := map[string][]any{}
	for _, k := range s.keys {
		properties[k.name] = k.property()
		if former := k.tag.Get("former"); former != "" {
			properties[former] = properties[k.name]
		}
		if k.required {
			required = append(required, k.name)
		}
		if group := k.tag.Get("oneof"); group != "" {
			if members[group] == nil {
				groups = append(groups, group)
			}
			members[group] = append(members[group], map[string]any{"required": []string{k.name}})
		}
	}
	object := map[string]any{
		"type": "object", "title": s.Name, "additionalProperties": false, "properties": properties,
	}
	if required != nil {
		object["required"] = required
	}
	var all []any
	for _, group := range groups {
		choices := members[group]
		if strings.HasSuffix(group, ",optional") {
			choices = append(slices.Clone(choices), map[string]any{"not": map[string]any{"anyOf": choices}})
		}
		all = append(all, map[string]any{"oneOf": choices})
	}
	if all != nil {
		object["allOf"] = all
	}
	return object
}

// property returns the schema of the value of a key, with its description.
func (k *key) property() map[string]any {
	property := maps.Clone(k.form.schema)
	if k.bare {
		property = map[string]any{"anyOf": []any{property, map[string]any{"type": "null"}}}
	}
	doc := k.tag.Get("doc")
	if text, ok := k.tag.Lookup("default"); ok {
		doc = strings.TrimSpace(doc + " Default: " + text + ".")
		// A default with a space describes the value in words.
		if v := annotation(k.typ, text); v != nil && (v != any(text) || !strings.Contains(text, " ")) {
			property["default"] = v
		}
	}
	if doc != "" {
		property["description"] = doc
	}
	if text, ok := k.tag.Lookup("example"); ok {
		property["examples"] = []any{annotation(k.typ, text)}
	}
	return property
}

// annotation returns the text of a tag as a value of the key's type, nil if the text is no such value.
func annotation(t reflect.Type, text string) any {
	if t == reflect.TypeFor[time.Duration]() || isText(t) || t.Kind() == reflect.String {
		return text
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil
	}
	if kind := reflect.ValueOf(v).Kind(); kind == reflect.String || t.Kind() == reflect.Struct && kind != reflect.Map {
		return nil
	}
	return v
}
