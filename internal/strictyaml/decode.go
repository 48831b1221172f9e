package strictyaml

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Decode reads a file into the struct that into points to, by the tags of its fields. Everything that is wrong is a
// problem of the document; a value that could not be read leaves its field as it was, but is an element of its list
// all the same. No content makes Decode panic or run for long. A type or a tag that it does not know does: that is
// a mistake in the program.
func Decode(file File, kind *Kind, into any) *Document {
	target := reflect.ValueOf(into).Elem()
	doc := Read(file, kind)
	if doc.root != nil {
		d := newDecoder(doc, target.Type())
		d.object(d.root, doc.root, doc.root.at, target)
	}
	return doc
}

// decoder reads the values of a file into structs.
type decoder struct {
	*Document
	plans map[reflect.Type]*plan
	root  *section
	below map[sectionID]*section
	// sections are all of the file, in the order of allSections; nil until they are needed.
	sections []*section
}

// sectionID is where a section stands.
type sectionID struct {
	key  *key
	part string
}

func newDecoder(doc *Document, root reflect.Type) *decoder {
	d := &decoder{Document: doc, plans: map[reflect.Type]*plan{}, below: map[sectionID]*section{}}
	d.root = doc.kind.section(root, "", "", false)
	d.root.keys = d.planOf(root).names()
	return d
}

// sectionOf returns the section of the maps under a key of another section.
func (d *decoder) sectionOf(k *key, in *section) *section {
	part := in.part
	if in == d.root {
		part = k.name
	}
	id := sectionID{k, part}
	s := d.below[id]
	if s == nil {
		s = d.kind.section(k.object, k.name, k.tag.Get("example"), k.element)
		s.part, s.keys = part, d.planOf(k.object).names()
		d.below[id] = s
	}
	return s
}

// object reads a map into a struct and reports all that the struct does not have. at is where the map is said to
// stand. It returns false if the value is no map.
func (d *decoder) object(s *section, v *Value, at place, into reflect.Value) bool {
	if v.shape != mapping {
		hint := ""
		if s.Example != "" {
			hint = "for example " + suggest.Quoted(s.Example)
		}
		d.fail(v.at, fmt.Sprintf("%s is a map, not %s", s.Name, v.shape), hint)
		return false
	}
	p := d.planOf(s.Type)
	if p.position != nil {
		into.FieldByIndex(p.position).SetString(d.position(at))
	}
	for _, f := range v.fields {
		k := p.byName[f.key]
		if k == nil {
			d.unknownKey(s, f)
			v.strange = true
			v.meant = append(v.meant, suggest.Closest(f.key, s.keys))
			continue
		}
		if kept := keeps(f); len(kept) > 0 {
			d.fail(f.at,
				fmt.Sprintf("%s replaces the one from `<<` here, but not %s", suggest.Quoted(f.key), quotedList(kept)),
				"envoyproxy/ratelimit would keep that, YAML does not: write `<<: *name` inside "+suggest.Quoted(f.key))
			f.value.unread = true
			continue
		}
		d.field(k, s, f, into.FieldByIndex(k.index))
	}
	return true
}

// field reads the value of a key into a field.
func (d *decoder) field(k *key, in *section, f field, into reflect.Value) {
	if f.value.unread {
		return
	}
	if f.value.shape == null {
		if !k.bare {
			return // a key without a value is as good as no key
		}
		f.value.shape = mapping
	}
	target := into
	if k.optional {
		target = reflect.New(k.typ).Elem()
	}
	if k.object != nil {
		in = d.sectionOf(k, in)
	}
	if !k.read(d, in, f, target) {
		f.value.unread = true
		return
	}
	if k.optional {
		into.Set(target.Addr())
	}
}

func readStruct(d *decoder, s *section, f field, into reflect.Value) bool {
	if f.value.shape == list && s.IfList != "" {
		d.fail(f.value.at, suggest.Quoted(f.key)+" is a map, not a list", s.IfList)
		return false
	}
	return d.object(s, f.value, f.at, into)
}

func readStructs(d *decoder, s *section, f field, into reflect.Value) bool {
	if f.value.shape != list {
		d.fail(f.value.at, fmt.Sprintf("%s is a list, not %s", suggest.Quoted(f.key), f.value.shape),
			"put `- ` before each element")
		return false
	}
	into.Set(reflect.MakeSlice(into.Type(), len(f.value.items), len(f.value.items)))
	for i, item := range f.value.items {
		if !item.unread && !d.object(s, item, item.at, into.Index(i)) {
			item.unread = true
		}
	}
	return true
}

// keeps returns the keys of the maps that a value replaces (<<) and that it does not set. envoyproxy/ratelimit
// keeps those.
func keeps(f field) []string {
	var kept []string
	if f.value.shape != mapping {
		return nil
	}
	for _, hidden := range f.hidden {
		for _, old := range hidden.fields {
			if !slices.ContainsFunc(f.value.fields, func(own field) bool { return own.key == old.key }) {
				kept = append(kept, old.key)
			}
		}
	}
	return kept
}
