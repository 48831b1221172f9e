package strictyaml

import (
	"slices"
	"strconv"
	"strings"
)

// spot is where a value stands, and its key. An element of a list is its own key.
type spot struct {
	at, key place
	strange bool // it is a map with an unknown key, or absent from one
	unread  bool // it could not be read itself
	absent  bool
	sound   bool // something is to be said about it: see Add
}

// find follows a path as far as there is something.
func (doc *Document) find(path string) spot {
	if doc.root == nil {
		return spot{}
	}
	v := doc.root
	start := place{line: 1, column: 1}
	s := spot{at: start, key: start}
	for path != "" {
		next, at, rest := v.step(path)
		if next == nil {
			s.at, s.strange, s.absent = s.key, v.meant != nil, true // at the key of what lacks it
			s.sound = !slices.ContainsFunc(v.meant, func(key string) bool { return key != "" && begins(path, key) })
			return s
		}
		v, path = next, rest
		s = spot{at: v.at, key: at}
		if v.unread {
			s.unread = path == ""
			return s
		}
	}
	s.strange, s.sound = v.meant != nil, !v.partial
	return s
}

// step follows the first part of a path. It returns the value there, nil for none, the place of its key and the
// rest of the path.
func (v *Value) step(path string) (next *Value, key place, rest string) {
	if index, ok := strings.CutPrefix(path, "["); ok && v.shape == list {
		index, rest, _ = strings.Cut(index, "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(v.items) {
			next, key = v.items[i], v.items[i].at
		}
		return next, key, strings.TrimPrefix(rest, ".")
	}
	longest := -1 // keys can have dots in them
	for _, f := range v.fields {
		if len(f.key) > longest && begins(path, f.key) {
			longest, next, key, rest = len(f.key), f.value, f.at, strings.TrimPrefix(path[len(f.key):], ".")
		}
	}
	return next, key, rest
}

// begins reports whether the first part of a path is a key.
func begins(path, key string) bool {
	after, ok := strings.CutPrefix(path, key)
	return ok && (after == "" || after[0] == '.' || after[0] == '[')
}

// join returns the path of what a path within another one is.
func join(prefix, path string) string {
	if prefix == "" || path == "" || path[0] == '[' {
		return prefix + path
	}
	return prefix + "." + path
}
