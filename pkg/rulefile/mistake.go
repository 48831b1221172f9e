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
		at, known := r.locate(prefix + m.Path)
		for _, path := range m.Also {
			_, read := r.locate(prefix + path)
			known = known && read
		}
		switch {
		case !known || m.Lacks && r.strange[at.value]:
		case m.OnKey:
			r.add(at.key, severity, m.Message, m.Hints)
		default:
			r.add(at.value, severity, m.Message, m.Hints)
		}
	}
}

// spot is where a value stands, and its key. An element of a list is its own key.
type spot struct{ value, key place }

// locate returns where the value at a path stands, or what is nearest around it when it is absent. It returns false when the value,
// or one around it, could not be read. An element of a list that was read in part could.
func (r *report) locate(path string) (at spot, known bool) {
	v := r.root
	at.value = place{line: 1, column: 1}
	at.key = at.value
	steps := strings.FieldsFunc(path, func(c rune) bool { return strings.ContainsRune(".[]", c) })
	for n, step := range steps {
		switch v.kind {
		case list:
			i, _ := strconv.Atoi(step)
			v = r.read(v.items)[i]
			at = spot{v.at, v.at}
		case mapping:
			i := slices.IndexFunc(v.fields, func(f field) bool { return f.key == step })
			inPart := i >= 0 && v.fields[i].value.kind == list && n+1 < len(steps)
			if slices.Contains(r.unread[v], step) && !inPart {
				return at, false
			}
			if i < 0 {
				v = &value{} // absent, with all below it
				continue
			}
			f := v.fields[i]
			v, at = f.value, spot{f.value.at, f.at}
		}
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
