package rulefile

import (
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// addMistakes reports what is wrong with the value that the file was read into, at prefix. Nothing is said about what
// could not be read.
func (r *report) addMistakes(prefix string, mistakes []ratelimit.Mistake) {
	for _, m := range mistakes {
		severity := Error
		if m.Warning {
			severity = Warning
		}
		if r.counts[severity] == maxProblems {
			continue
		}
		at, known := r.locate(prefix+m.Path, m.OnKey)
		for _, path := range m.Also {
			_, read := r.locate(prefix+path, false)
			known = known && read
		}
		if !known || m.Lacks && r.strange[at] {
			continue
		}
		r.add(at, severity, m.Message, m.Hints)
	}
}

// locate returns where the value at a path stands, or its key, or what is nearest around it when it is absent. It
// returns false when the value, or one around it, could not be read.
func (r *report) locate(path string, onKey bool) (place, bool) {
	v := r.root
	at := place{line: 1, column: 1}
	key := at
	for _, step := range strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune(".[]", c) }) {
		switch v.kind {
		case list:
			i, _ := strconv.Atoi(step)
			v = r.read(v.items)[i]
			at, key = v.at, v.at
		case mapping:
			if slices.Contains(r.unread[v], step) {
				return at, false
			}
			i := slices.IndexFunc(v.fields, func(f field) bool { return f.key == step })
			if i < 0 {
				v = &value{} // absent, with all below it
				continue
			}
			f := v.fields[i]
			v, at, key = f.value, f.value.at, f.at
		}
	}
	if onKey {
		return key, true
	}
	return at, true
}

// read returns the elements of a list that could be read: those that a value has.
func (r *report) read(items []*value) []*value {
	if len(r.dropped) == 0 {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), func(item *value) bool { return r.dropped[item] })
}
