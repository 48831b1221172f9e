package rulefile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// object is one kind of map in a rule file: its keys, and where they are put.
type object[T any] struct {
	section
	keys []key[T]
}

// key is one key of an object and how its value is read into a T.
type key[T any] struct {
	name string
	// read returns false if the value could not be read.
	read func(r *report, f field, into *T) bool
}

// given is what a file says under a key.
type given[V any] struct {
	value V
	// set says that the key is there with a value that could be read.
	set bool
	// mentioned says that the key is there, whatever came of its value.
	mentioned bool
	// key and at are where the key and its value stand.
	key, at place
}

// or returns the value, or another one when the file gives none.
func (g given[V]) or(other V) V {
	if g.set {
		return g.value
	}
	return other
}

// reader reads the value of a key; ok is false when it cannot and has reported that.
type reader[V any] func(r *report, f field) (v V, ok bool)

// on is a row of a schema: the key, what its value is, and where it goes.
func on[T, V any](name string, read reader[V], where func(*T) *given[V]) key[T] {
	return key[T]{name: name, read: func(r *report, f field, into *T) bool {
		g := where(into)
		g.mentioned, g.key, g.at = true, f.at, f.value.at
		if f.value.broken {
			return false
		}
		if f.value.kind == null {
			g.mentioned = false // a key without a value is as good as no key
			return true
		}
		g.value, g.set = read(r, f)
		return g.set
	}}
}

// readObject reads a map by its schema and reports all that the schema does not know. ok is false when the value is not a map.
func readObject[T any](r *report, schema object[T], v *value) (t T, ok bool) {
	if v.kind != mapping {
		r.fail(v.at, fmt.Sprintf("%s is a map, not %s", schema.name, v.kind), "for example "+quoted(schema.example))
		return t, false
	}
	for _, f := range v.fields {
		i := slices.IndexFunc(schema.keys, func(k key[T]) bool { return k.name == f.key })
		if i < 0 {
			unknownKey(r, schema.section, schema.keyNames(), f)
			r.strange[v.at] = true
			// What a misspelt key stands for is not missing, too.
			meant := suggest.Closest(f.key, schema.keyNames())
			i = slices.IndexFunc(schema.keys, func(k key[T]) bool { return k.name == meant })
			f.value = &value{at: f.value.at, broken: true}
		}
		if i < 0 {
			continue
		}
		if kept := keeps(f); len(kept) > 0 {
			r.fail(f.at, fmt.Sprintf("%s replaces the one from `<<` here, but not %s", quoted(f.key), oneOfKeys(kept)),
				"envoyproxy/ratelimit would keep that, YAML does not: write `<<: *name` inside "+quoted(f.key))
			f.value = &value{at: f.value.at, broken: true}
		}
		if !schema.keys[i].read(r, f, &t) {
			r.unread[v] = append(r.unread[v], schema.keys[i].name)
		}
	}
	return t, true
}

func (o object[T]) keyNames() []string {
	names := make([]string, len(o.keys))
	for i, k := range o.keys {
		names[i] = k.name
	}
	return names
}

func oneOfKeys(names []string) string {
	return "`" + strings.Join(names, "`, `") + "`"
}

// section is where a key can stand.
type section struct {
	// name is what the map is called in messages, unlike any other of its kind of file; where is how its inside is called.
	name, where string
	// belongs says to people where a key of this section goes.
	belongs string
	// example is a small one of it.
	example string
	// part is the part of the file that it stands in, "" for rules.
	part string
	// remarks are hints for keys that it does not have, but that people write: those of Envoy, for example.
	remarks map[string]string
}

// unknownKey reports a key that a section does not have: it belongs elsewhere, is misspelt, or is not known at all.
func unknownKey(r *report, in section, own []string, f field) {
	message := fmt.Sprintf("unknown key %s %s", quoted(f.key), in.where)
	word := suggest.Closest(f.key, own)
	home, hasHome := homeOf(r.sections, f.key, in)
	switch {
	case in.remarks[f.key] != "":
		r.fail(f.at, message, in.remarks[f.key])
		return
	case word != "" && (!hasHome || suggest.Distance(f.key, word) == 1):
		r.fail(f.at, message, "did you mean `"+word+"`?")
		return
	case hasHome:
		r.fail(f.at, fmt.Sprintf("%s does not belong %s", quoted(f.key), in.where), home.belongs)
		return
	}
	for _, other := range r.sections {
		if word := suggest.Closest(f.key, other.keys); word != "" {
			r.fail(f.at, message, "did you mean `"+word+"`?", other.belongs)
			return
		}
	}
	r.fail(f.at, message, "the keys here are "+oneOfKeys(own))
}

// homeOf returns the section that a key belongs in, when that is not the one it stands in: one of the same part of the file first.
func homeOf(sections []sectionKeys, key string, in section) (section, bool) {
	var home section
	for _, other := range sections {
		switch {
		case other.name == in.name || !slices.Contains(other.keys, key):
		case other.part == in.part:
			return other.section, true
		case home.name == "":
			home = other.section
		}
	}
	return home, home.name != ""
}
