package strictyaml

import (
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Field is the description of a key, for the reference of a kind of file.
type Field struct {
	// Path names the key and the keys around it, without indexes: "authz.credentials.jwt". It is "" for the whole file.
	Path string
	// Type names the values that the key takes: "text", "list of maps", "whole number, 1 to 100".
	Type string
	// Doc, Default and Example are the tags of these names.
	Doc, Default, Example string
	Required              bool
	// Group is the tag oneof.
	Group string
	// Note is a longer explanation, in Markdown.
	Note string
	// Fields are the keys of the map, or of each map of the list. Fields is empty if Same is set: Same is another field
	// with the same keys, perhaps one around this field.
	Fields []*Field
	Same   *Field
}

// Reference describes a kind of file that is read into a type, by the same tags as Schema. notes are in Markdown. The
// text before the first heading is the note of the whole file; the text below the heading "## `PATH`" is the note of
// that key. Reference panics if a heading names no key.
func Reference(kind *Kind, root reflect.Type, notes string) *Field {
	top := &Field{Type: "map"}
	kind.describe(top, kind.section(root, nil), map[reflect.Type]*Field{})
	for i, note := range strings.Split(notes, "\n## `") {
		path, text, _ := strings.Cut(note, "`\n")
		if i == 0 {
			path, text = "", note
		}
		top.At(path).Note = strings.TrimSpace(text)
	}
	return top
}

// describe adds the keys of a map. known are the maps that were described before.
func (kind *Kind) describe(f *Field, s *section, known map[reflect.Type]*Field) {
	if f.Same = known[s.Type]; f.Same != nil {
		return
	}
	known[s.Type] = f
	for _, k := range s.keys {
		below := &Field{
			Path: strings.TrimPrefix(f.Path+"."+k.name, "."), Type: k.form.name, Doc: k.tag.Get("doc"),
			Default: k.tag.Get("default"), Example: k.tag.Get("example"),
			Required: k.required, Group: k.tag.Get("oneof"),
		}
		f.Fields = append(f.Fields, below)
		if k.object != nil {
			kind.describe(below, k.section(kind), known)
		}
	}
}

// Name returns the key without the keys around it.
func (f *Field) Name() string { return f.Path[strings.LastIndexByte(f.Path, '.')+1:] }

// Keys returns the keys of the map, those of Same if it is set.
func (f *Field) Keys() []*Field {
	if f.Same != nil {
		return f.Same.Fields
	}
	return f.Fields
}

// Choices returns a sentence for each group of keys of the map that exclude each other.
func (f *Field) Choices() (sentences []string) {
	var groups []string
	names := map[string][]string{}
	for _, k := range f.Keys() {
		if k.Group != "" && names[k.Group] == nil {
			groups = append(groups, k.Group)
		}
		names[k.Group] = append(names[k.Group], k.Name())
	}
	for _, group := range groups {
		sentence := "One of " + suggest.OneOf(names[group]) + " is required."
		if strings.HasSuffix(group, ",optional") {
			sentence = "At most one of " + suggest.OneOf(names[group]) + "."
		}
		sentences = append(sentences, sentence)
	}
	return sentences
}

// At returns the field at a path relative to f, f itself for "", and nil if there is none.
func (f *Field) At(path string) *Field {
	for name := range strings.FieldsFuncSeq(path, func(c rune) bool { return c == '.' }) {
		keys := f.Keys()
		i := slices.IndexFunc(keys, func(k *Field) bool { return k.Name() == name })
		if i < 0 {
			return nil
		}
		f = keys[i]
	}
	return f
}

// All returns f and all keys below it, each once, a map before its keys.
func (f *Field) All() []*Field {
	all := []*Field{f}
	for _, k := range f.Fields {
		all = append(all, k.All()...)
	}
	return all
}
