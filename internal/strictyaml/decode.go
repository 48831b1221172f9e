package strictyaml

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Decode reads a file into the struct that into points to, by the tags of its fields. Each mistake is a problem of the
// document. A value that cannot be read leaves its field unchanged, and an element of a list keeps its place. No
// content makes Decode panic or run for long. Decode panics for an unsupported type or tag: a mistake in the program.
func Decode(file File, kind *Kind, into any) *Document {
	target := reflect.ValueOf(into).Elem()
	doc := Read(file, kind)
	if doc.root != nil {
		d := &decoder{Document: doc, top: kind.section(target.Type(), nil)}
		d.object(d.top, field{value: doc.root, at: doc.root.at}, target)
	}
	return doc
}

// decoder reads the values of a file into structs.
type decoder struct {
	*Document
	top *section
	// sections are all sections of the file: first those with a row in Kind.Sections, in that order, then the others
	// from the top of the file down. nil until they are needed.
	sections []*section
}

// object reads a map into a struct and reports its unknown keys. It returns false if the value is not a map.
func (d *decoder) object(s *section, f field, into reflect.Value) bool {
	v := f.value
	if v.shape != mapping {
		return d.fail(v.at, fmt.Sprintf("%s is a map, not %s", s.Name, v.shape), forExample(s.Example))
	}
	if s.position != nil {
		into.FieldByIndex(s.position).SetString(d.position(f.at))
	}
	for n, f := range v.fields {
		if s == d.top && strings.HasPrefix(f.key, anchorsKey) {
			continue
		}
		i := slices.Index(s.names, f.key)
		if former := s.former(f.key); former >= 0 {
			if name := s.names[former]; v.has(name) {
				d.fail(f.at, suggest.Quoted(f.key)+" beside "+suggest.Quoted(name),
					suggest.Quoted(f.key)+" is the former name of "+suggest.Quoted(name)+": keep one of them")
				f.value.unread = true
				continue
			}
			i, v.fields[n].key, f.key = former, s.names[former], s.names[former]
		}
		if i < 0 {
			word := suggest.Closest(f.key, s.names)
			if !d.unknownKey(s, f) || !suggest.Sure(f.key, word) || v.has(word) {
				v.meant = append(v.meant, word)
				continue
			}
			// Its value is read, so that one report has the mistakes there, too.
			v.fields[n].key, f.key, i = word, word, slices.Index(s.names, word)
		}
		if dropped := droppedKeys(f); len(dropped) > 0 {
			d.fail(f.at,
				fmt.Sprintf("%s replaces the map from `<<` and drops %s", suggest.Quoted(f.key), suggest.List(dropped, " and ")),
				"envoyproxy/ratelimit keeps dropped keys, YAML does not: write `<<: *name` inside "+suggest.Quoted(f.key))
			f.value.unread = true
			continue
		}
		d.field(s.keys[i], f, into.FieldByIndex(s.keys[i].index))
	}
	if v.meant == nil { // an unknown key may be meant for one that is absent
		d.absentKeys(s, f)
	}
	return true
}

// anchorsKey begins the top-level keys that the file does not use. Their values can have anchors for aliases below.
const anchorsKey = "x-"

// has reports whether a map has a key.
func (v *Value) has(key string) bool {
	return slices.ContainsFunc(v.fields, func(f field) bool { return f.key == key })
}

// absentKeys notes the required keys that a map lacks.
func (d *decoder) absentKeys(s *section, f field) {
	for _, k := range s.keys {
		given := func(f field) bool { return f.key == k.name && (f.value.unread || f.value.shape != null) }
		if k.required && !slices.ContainsFunc(f.value.fields, given) {
			d.absent = append(d.absent, absentKey{in: f.value, name: k.name, at: f.at,
				message: suggest.Quoted(k.name) + " is missing " + d.where(s),
				hint:    "add " + suggest.Quoted(strings.TrimSuffix(k.name+": "+k.tag.Get("example"), ": "))})
		}
	}
}

// where returns the place of a section for messages.
func (d *decoder) where(s *section) string {
	if s == d.top {
		return "at " + s.Name
	}
	return "in " + s.Name
}

// field reads the value of a key into a field.
func (d *decoder) field(k *key, f field, into reflect.Value) {
	v := f.value
	if v.shape == null && k.bare && !v.unread {
		v.shape = mapping
	}
	if v.unread || v.shape == null {
		return // a key without a value means the same as no key
	}
	target := into
	if k.optional {
		target = reflect.New(k.typ).Elem()
	}
	v.unread = !k.form.read(d, f, target)
	if k.optional && !v.unread {
		into.Set(target.Addr())
	}
}

// droppedKeys returns the keys that a map does not set but the merged maps (<<) that it replaces did.
// envoyproxy/ratelimit keeps these keys.
func droppedKeys(f field) []string {
	var dropped []string
	if f.value.shape != mapping {
		return nil
	}
	for _, hidden := range f.hidden {
		for _, old := range hidden.fields {
			if !f.value.has(old.key) {
				dropped = append(dropped, old.key)
			}
		}
	}
	return dropped
}

// unknownKey reports a key that a section does not have: the key is misplaced, misspelt, or unknown everywhere. It
// returns true if the only hint is the closest key of the section.
func (d *decoder) unknownKey(in *section, f field) (misspelt bool) {
	if d.counts[false] == maxProblems {
		return false // it is not reported, and its hints take time to find
	}
	if d.sections == nil {
		d.sections = d.kind.sections(d.top)
		slices.SortStableFunc(d.sections, func(a, b *section) int { return cmp.Compare(a.rank, b.rank) })
	}
	where := d.where(in)
	message := fmt.Sprintf("unknown key %s %s", suggest.Quoted(f.key), where)
	word := suggest.Closest(f.key, in.names)
	home := d.homeOf(f.key, in)
	var hints []string
	switch {
	case in.Remarks[f.key] != "":
		hints = []string{in.Remarks[f.key]}
	case word != "" && (home == nil || suggest.Distance(f.key, word) == 1):
		misspelt = home == nil
		hints = []string{suggest.DidYouMean(f.key, in.names)}
	case home != nil:
		message = fmt.Sprintf("%s does not belong %s", suggest.Quoted(f.key), where)
		hints = []string{home.Belongs}
	default:
		hints = []string{"the keys here are " + suggest.List(in.names, ", ")}
		for _, other := range d.sections {
			if hint := suggest.DidYouMean(f.key, other.names); hint != "" {
				hints = []string{hint, other.Belongs}
				break
			}
		}
	}
	d.fail(f.at, message, hints...)
	return misspelt
}

// homeOf returns another section that has the key, nil for none. A section in the same part of the file comes first.
func (d *decoder) homeOf(key string, in *section) *section {
	var home *section
	for _, other := range d.sections {
		switch {
		case other.Name == in.Name || !slices.Contains(other.names, key):
		case other.part == in.part:
			return other
		case home == nil:
			home = other
		}
	}
	return home
}

// forExample returns a hint that shows an example, "" for none.
func forExample(example string) string {
	if example == "" {
		return ""
	}
	return "for example " + suggest.Quoted(example)
}
