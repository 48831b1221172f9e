package strictyaml

import (
	"slices"
	"strconv"
	"strings"
)

// Document is a file that was read: what is wrong with it, and where its values stand.
type Document struct {
	report *report
	root   *Value // nil if nothing could be read
}

// NewDocument returns a document of a file of which nothing is read.
func NewDocument(file File, kind *Kind) *Document { return &Document{report: newReport(file, kind)} }

// Read reads a file without a struct to decode it into.
func Read(file File, kind *Kind) *Document {
	if int64(len(file.Content)) > kind.MaxSize {
		doc := NewDocument(File{Name: file.Name}, kind)
		doc.Fail(nil, kind.tooLarge(), kind.TooLarge)
		return doc
	}
	doc := NewDocument(file, kind)
	doc.root = readTree(doc.report)
	return doc
}

// Root returns the map that the file is, nil if it could not be read.
func (doc *Document) Root() *Value { return doc.root }

// Fail adds an error at a value, nil for the file as a whole. The message says what is wrong, the hints how to fix
// it.
func (doc *Document) Fail(at *Value, message string, hints ...string) {
	if at == nil {
		at = new(Value)
	}
	doc.report.fail(at.at, message, hints...)
}

// FailAtEnd adds an error at the last line that has text.
func (doc *Document) FailAtEnd(message string, hints ...string) {
	line := len(doc.report.lines)
	for line > 1 && doc.report.lines[line-1] == "" {
		line--
	}
	doc.report.fail(place{line: line, column: 1}, message, hints...)
}

// Mistake is something in the decoded value that makes no sense, as a check of its type reports it.
type Mistake struct {
	// Path says where, in keys of the file: "descriptors[0].rate_limit.unit". "" is the whole value. What stands
	// there can be absent.
	Path string
	// OnKey says that the mistake is at the key and not at its value. An element of a list is its own key.
	OnKey bool
	// Also are the paths of other values that the mistake follows from.
	Also []string
	// Lacks says that the map at Path has none of several keys, one of which it needs, or that Path is a key that
	// its map needs and lacks.
	Lacks   bool
	Warning bool
	Message string
	Hints   []string
}

// Add adds mistakes at the positions of their paths, or at the key of what lacks a value there. The paths begin at
// prefix, itself a path. A mistake that may follow from one that was reported before is left out: if a value on one
// of its paths could not be read, or if it is about what a map lacks and the map has an unknown key.
func (doc *Document) Add(prefix string, mistakes ...Mistake) {
	for _, m := range mistakes {
		spot, sound := doc.find(join(prefix, m.Path))
		sound = sound || m.OnKey && !m.Lacks && spot.unread // its key is there all the same
		for _, path := range m.Also {
			sound = sound && doc.Sound(join(prefix, path))
		}
		if !sound || m.Lacks && spot.strange {
			continue
		}
		at, severity := spot.at, Error
		if m.OnKey {
			at = spot.key
		}
		if m.Warning {
			severity = Warning
		}
		doc.report.add(at, severity, m.Message, m.Hints)
	}
}

// Sound reports whether everything at a path could be read; what is absent could.
func (doc *Document) Sound(path string) bool {
	_, sound := doc.find(path)
	return sound
}

// Has reports whether there is a value at a path, and everything there could be read.
func (doc *Document) Has(path string) bool {
	spot, sound := doc.find(path)
	return sound && !spot.absent
}

// Position returns where the key of a path stands, or an element of a list, as "file:line".
func (doc *Document) Position(path string) string {
	spot, _ := doc.find(path)
	return doc.report.position(spot.key)
}

// Problems returns what is wrong with the file, in its order.
func (doc *Document) Problems() Problems { return doc.report.sorted() }

// spot is where a value stands, and its key. An element of a list is its own key.
type spot struct {
	at, key place
	strange bool // it is a map with an unknown key, or absent from one
	unread  bool // it could not be read itself
	absent  bool
}

// find follows a path as far as there is something. sound is false if nothing is to be said about what is there:
// see Add.
func (doc *Document) find(path string) (s spot, sound bool) {
	if doc.root == nil {
		return s, false
	}
	v := doc.root
	start := place{line: 1, column: 1}
	s = spot{at: start, key: start}
	for path != "" {
		next, at, rest := v.step(path)
		if next == nil {
			s.at, s.strange, s.absent = s.key, v.strange, true // at the key of what lacks it
			return s, !slices.ContainsFunc(v.meant, func(key string) bool { return key != "" && begins(path, key) })
		}
		v, path = next, rest
		s = spot{at: v.at, key: at}
		if v.unread {
			s.unread = path == ""
			return s, false
		}
	}
	s.strange = v.strange
	return s, !v.partial
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
