package strictyaml

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Schema returns the JSON Schema (draft 7, which every editor reads) of a kind of file that is read into a type. It
// has the keys with their types, words and bounds. The tags doc, default and example describe them, required:"true"
// marks a key that a map needs, and keys with the same tag oneof exclude each other: a map needs one of them, or
// with ",optional" behind the group's name one at most.
//
// The schema is a little stricter than Decode, which also takes yes for true, words in upper case where their type
// does, and keys without a value.
func Schema(kind *Kind, root reflect.Type) ([]byte, error) {
	s := schema{decoder: newDecoder(NewDocument(File{}, kind), root), definitions: map[string]any{}}
	whole := s.object(s.root)
	whole["$schema"] = "http://json-schema.org/draft-07/schema#"
	whole["title"] = kind.Noun
	whole["definitions"] = s.definitions
	return json.MarshalIndent(whole, "", "  ")
}

type schema struct {
	*decoder
	// definitions are the maps below the root, by the names of their types.
	definitions map[string]any
}

// object returns the schema of a map.
func (s schema) object(in *section) map[string]any {
	properties, required := map[string]any{}, []string{}
	var groups []string
	members := map[string][]any{}
	for _, k := range s.planOf(in.Type).keys {
		properties[k.name] = s.property(k, in)
		if k.tag.Get("required") == "true" {
			required = append(required, k.name)
		}
		if group := k.tag.Get("oneof"); group != "" {
			if members[group] == nil {
				groups = append(groups, group)
			}
			members[group] = append(members[group], map[string]any{"required": []string{k.name}})
		}
	}
	object := map[string]any{"type": "object", "title": in.Name, "additionalProperties": false,
		"properties": properties}
	if len(required) > 0 {
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

// property returns the schema of the value of a key.
func (s schema) property(k *key, in *section) map[string]any {
	property := s.value(k, in)
	doc := k.tag.Get("doc")
	if text, ok := k.tag.Lookup("default"); ok {
		doc = strings.TrimSpace(doc + " Default: " + text + ".")
		// What has a space in it is not the value but words about it.
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

func (s schema) value(k *key, in *section) map[string]any {
	t := k.typ
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return map[string]any{"type": "string", "pattern": `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`}
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string",
			"pattern": `^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}.*)?$`}
	case k.object != nil && k.element:
		return map[string]any{"type": "array", "items": s.reference(k, in)}
	case k.object != nil && k.bare:
		return map[string]any{"anyOf": []any{s.reference(k, in), map[string]any{"type": "null"}}}
	case k.object != nil:
		return s.reference(k, in)
	case t == reflect.TypeFor[map[string]string]():
		return map[string]any{"type": "object", "additionalProperties": text(nil)}
	case t.Kind() == reflect.Map:
		return map[string]any{"type": "object"}
	case t.Kind() == reflect.Slice:
		array := map[string]any{"type": "array", "items": text(wordsOf(t.Elem()))}
		if least, ok := k.bound("min"); ok {
			array["minItems"] = least
		}
		return array
	case isText(t), t.Kind() == reflect.String:
		return text(wordsOf(t))
	case t.Kind() == reflect.Bool:
		return map[string]any{"type": "boolean"}
	}
	least, most := k.bounds()
	return map[string]any{"type": "integer", "minimum": least, "maximum": most}
}

// text returns the schema of a text, or of one of some words. A number and true are texts, too.
func text(words []string) map[string]any {
	if words != nil {
		return map[string]any{"enum": words}
	}
	return map[string]any{"type": []string{"string", "number", "boolean"}}
}

// reference returns a reference to the definition of a map under a key.
func (s schema) reference(k *key, in *section) map[string]any {
	name := k.object.String()
	if _, known := s.definitions[name]; !known {
		s.definitions[name] = nil // it is being made: it may be in itself
		s.definitions[name] = s.object(s.sectionOf(k, in))
	}
	return map[string]any{"$ref": "#/definitions/" + name}
}

// annotation returns the text of a tag as a value of the key's type, nil if it is none.
func annotation(t reflect.Type, text string) any {
	kind := t.Kind()
	isTime := t == reflect.TypeFor[time.Duration]() || t == reflect.TypeFor[time.Time]()
	if isTime || isText(t) || kind == reflect.String {
		return text
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil
	}
	got := reflect.ValueOf(v).Kind()
	isInteger := kind >= reflect.Int && kind <= reflect.Uint64
	if got == kind || isInteger && got == reflect.Int || kind == reflect.Struct && got == reflect.Map {
		return v
	}
	return nil
}
