package strictyaml

import (
	"slices"
	"strconv"
	"strings"
)

// spot is the place of a value, and of its key. An element of a list is its own key.
type spot struct {
	at, key    place
	unknownKey bool // the value is in, or is, a map with an unknown key
	unread     bool // the value was not read
	sound      bool // its mistakes are reported: see Add
	// in is the map or list of the value, or the map that lacks it. path is the path from there.
	in   *Value
	path string
}

// find follows a path as far as the file has values.
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
			s.at, s.unknownKey = s.key, v.meant != nil // at the key of the map that lacks it
			s.in, s.path = v, path
			s.sound = !slices.ContainsFunc(v.meant, func(key string) bool { return key != "" && begins(path, key) })
			return s
		}
		s = spot{at: next.at, key: at, in: v, path: path}
		v, path = next, rest
		if v.unread {
			s.unread = path == ""
			return s
		}
	}
	s.unknownKey, s.sound = v.meant != nil, !v.partial
	return s
}

// step follows the first part of a path. It returns the value there (nil for none), its key's place, and the rest.
func (v *Value) step(path string) (next *Value, key place, rest string) {
	if index, ok := strings.CutPrefix(path, "["); ok && v.shape == list {
		index, rest, _ = strings.Cut(index, "]")
		if i, err := strconv.Atoi(index); err == nil && i >= 0 && i < len(v.items) {
			next, key = v.items[i], v.items[i].at
		}
		return next, key, strings.TrimPrefix(rest, ".")
	}
	longest := -1 // keys can contain dots
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

// join returns the full path of a path that is relative to prefix.
func join(prefix, path string) string {
	if prefix == "" || path == "" || path[0] == '[' {
		return prefix + path
	}
	return prefix + "." + path
}
