package strictyaml

import (
	"cmp"
	"encoding"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/extauthz/extauthz/internal/suggest"
)

// section is a Section with its keys, by the tags of its struct.
type section struct {
	Section
	// rank is the index of its row in Kind.Sections.
	rank int
	// part is the top-level key that the section is below, "" for the top level itself.
	part  string
	keys  []*key
	names []string
	// position is the field for "file:line", nil for none.
	position []int
}

// key is a key of a section, and the field for its value.
type key struct {
	name  string
	in    *section
	index []int
	tag   reflect.StructTag
	// typ is the type of the field, without the pointer of an optional one.
	typ                      reflect.Type
	optional, bare, required bool
	// object is the struct for the value, or for each element of a list, nil for other values.
	object reflect.Type
	list   bool
	form   form
	// below is the section of the object. It is created on first use, because a section can contain itself.
	below *section
}

// former returns the index of the key that has had another name, -1 for none.
func (s *section) former(name string) int {
	return slices.IndexFunc(s.keys, func(k *key) bool { return name != "" && k.tag.Get("former") == name })
}

// section returns the section for maps of a type below the key under, or in its list. under is nil for the root map.
func (kind *Kind) section(t reflect.Type, under *key) *section {
	name, belongs := "the top level of the file", "it belongs at the top level of the file"
	if under != nil {
		name, belongs = suggest.Quoted(under.name), "it belongs inside "+suggest.Quoted(under.name+":")
		if under.list {
			name, belongs = "an element of "+name, "it belongs in an element of "+suggest.Quoted(under.name+":")
		}
	}
	s := &section{Section: Section{Type: t}, rank: slices.IndexFunc(kind.Sections, func(row Section) bool {
		return row.Type == t && (row.Key == "" || under != nil && row.Key == under.name)
	})}
	if s.rank < 0 {
		s.rank = len(kind.Sections)
	} else {
		s.Section = kind.Sections[s.rank]
	}
	s.Name, s.Belongs = cmp.Or(s.Name, name), cmp.Or(s.Belongs, belongs)
	if under != nil {
		s.Example = cmp.Or(s.Example, under.example())
		s.part = cmp.Or(under.in.part, under.name)
	}
	for _, f := range reflect.VisibleFields(t) { // including those of inline structs
		name, option := Key(f)
		switch {
		case option == "position":
			s.position = f.Index
			continue
		case name == "":
			continue
		}
		k := &key{name: name, in: s, index: f.Index, tag: f.Tag, typ: f.Type, bare: option == "bare",
			required: f.Tag.Get("required") == "true"}
		if k.typ.Kind() == reflect.Pointer {
			k.typ, k.optional = k.typ.Elem(), true
		}
		k.form = k.formOf(k.typ)
		s.keys, s.names = append(s.keys, k), append(s.names, name)
	}
	return s
}

// sections returns a section and all sections below it, each name with a type once, from the top of the file down.
func (kind *Kind) sections(root *section) (all []*section) {
	type shape struct { // keys of one name can have different maps
		name string
		of   reflect.Type
	}
	known := map[shape]bool{}
	var walk func(s *section)
	walk = func(s *section) {
		if known[shape{s.Name, s.Type}] {
			return
		}
		known[shape{s.Name, s.Type}] = true
		all = append(all, s)
		for _, k := range s.keys {
			if k.object != nil {
				walk(k.section(kind))
			}
		}
	}
	walk(root)
	return all
}

// section returns the section of the maps under a key.
func (k *key) section(kind *Kind) *section {
	if k.below == nil {
		k.below = kind.section(k.object, k)
	}
	return k.below
}

// form is the reader of the values of a type, their JSON Schema without a description, and their name for people.
type form struct {
	read   reader
	schema map[string]any
	name   string
}

// formOf returns the form of the key's type, or of its elements' type. It panics for an unsupported type.
func (k *key) formOf(t reflect.Type) form {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		const pattern = `^(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h))+$`
		return form{readDuration, map[string]any{"type": "string", "pattern": pattern}, "duration"}
	case t.Kind() == reflect.Map && t.Elem().Kind() != reflect.Interface:
		element := k.formOf(t.Elem())
		entries := form{k.readEntries(element.read),
			map[string]any{"type": "object", "minProperties": 1, "additionalProperties": element.schema}, "map of texts"}
		if element.name != "text" {
			entries.name = "map of names to a " + element.name
		}
		if words := wordsOf(t); words != nil {
			entries.schema = map[string]any{"anyOf": []any{entries.schema, map[string]any{"enum": words}}}
			entries.name += ", or " + suggest.OneOf(words)
		}
		return entries
	case isText(t), t.Kind() == reflect.String:
		words := wordsOf(t)
		if also := k.tag.Get("also"); also != "" {
			words = append(words, also)
		}
		read := readText(words)
		if words != nil {
			return form{read, map[string]any{"enum": words}, suggest.OneOf(words)}
		}
		if _, takesLists := reflect.New(t).Interface().(listUnmarshaler); takesLists {
			return form{k.readTextOrList, map[string]any{"anyOf": []any{textSchema(), listSchema()}}, "text or list"}
		}
		return form{read, textSchema(), "text"}
	case t.Kind() == reflect.Bool:
		return form{readBool, map[string]any{"type": "boolean"}, "`true` or `false`"}
	case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64:
		least, most := k.bounds(t)
		name := fmt.Sprintf("whole number, %d to %d", least, most)
		if most == math.MaxInt64 {
			name = fmt.Sprintf("whole number, %d or more", least)
		}
		return form{readInteger(least, most), map[string]any{"type": "integer", "minimum": least, "maximum": most}, name}
	case t.Kind() == reflect.Struct:
		k.object = t
		object := form{k.readStruct, map[string]any{"$ref": "#/definitions/" + t.String()}, "map"}
		if _, takesLists := reflect.New(t).Interface().(listUnmarshaler); takesLists {
			either := map[string]any{"anyOf": []any{object.schema, listSchema()}}
			object = form{k.readStructOrList, either, "map or list of texts"}
		}
		return object
	case t.Kind() == reflect.Slice && t == k.typ:
		k.list = true
		element, name := k.formOf(t.Elem()), "list of texts"
		if k.object != nil {
			name = "list of maps"
		}
		schema := map[string]any{"type": "array", "items": element.schema}
		least := k.bound("min", 0)
		if least > 0 {
			schema["minItems"] = least
		}
		return form{k.readList(element.read, least), schema, name}
	case t == reflect.TypeFor[map[string]any]():
		return form{k.readMap, map[string]any{"type": "object"}, "map"}
	}
	panic(fmt.Sprintf("strictyaml: cannot read %s into a %s", k.name, k.typ))
}

// textSchema is the JSON Schema of a text. 5 and true are texts, too.
func textSchema() map[string]any {
	return map[string]any{"type": []string{"string", "number", "boolean"}}
}

// listSchema is the JSON Schema of the list of a listUnmarshaler.
func listSchema() map[string]any {
	return map[string]any{"type": "array", "items": textSchema(), "minItems": 1}
}

func isText(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// wordsOf returns the words that a type takes, nil if it takes any text.
func wordsOf(t reflect.Type) []string {
	if w, ok := reflect.New(t).Interface().(interface{ Words() []string }); ok {
		return w.Words()
	}
	return nil
}

// example returns a small value of the key, or of an element of its list, in YAML. "" is none.
func (k *key) example() string {
	switch text := k.tag.Get("example"); {
	case text == "":
		return ""
	case k.list:
		return "- " + text
	default:
		return k.name + ": " + text
	}
}

// bounds returns the least and the largest value of an integer, by the tags of the key or by its type. It is at most an
// int64.
func (k *key) bounds(t reflect.Type) (least, most int64) {
	bits := t.Bits()
	most = math.MaxInt64 >> (64 - bits)
	least = -most - 1
	if t.Kind() >= reflect.Uint {
		least, most = 0, math.MaxInt64>>max(0, 63-bits)
	}
	return k.bound("min", least), k.bound("max", most)
}

// bound returns the number of a tag, or the default without the tag.
func (k *key) bound(tag string, standard int64) int64 {
	text, ok := k.tag.Lookup(tag)
	if !ok {
		return standard
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("strictyaml: the tag %s of %s is not a whole number: %s", tag, k.name, text))
	}
	return n
}
