package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Document is a file that was read: what is wrong with it, and where its values stand.
type Document struct {
	kind *Kind
	name string
	text string
	// lines are those of the text.
	lines []string
	// root is the map that the file is, nil if it could not be read.
	root     *Value
	problems Problems
	// seen are the places and messages of the problems; counts are how many there are, by whether they are warnings.
	seen   map[string]bool
	counts map[bool]int
}

// NewDocument returns a document of a file of which nothing is read.
func NewDocument(file File, kind *Kind) *Document {
	text := strings.TrimPrefix(string(file.Content), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return &Document{
		kind: kind, name: file.Name, text: text, lines: strings.Split(text, "\n"),
		seen: map[string]bool{}, counts: map[bool]int{},
	}
}

// Read reads a file without a struct to decode it into.
func Read(file File, kind *Kind) *Document {
	if int64(len(file.Content)) > kind.MaxSize {
		doc := NewDocument(File{Name: file.Name}, kind)
		doc.Fail(nil, fmt.Sprintf("larger than %d MB", kind.MaxSize>>20), kind.TooLarge)
		return doc
	}
	doc := NewDocument(file, kind)
	doc.root = readTree(doc)
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
	doc.fail(at.at, message, hints...)
}

// FailAtEnd adds an error at the last line that has text.
func (doc *Document) FailAtEnd(message string, hints ...string) {
	line := len(doc.lines)
	for line > 1 && doc.lines[line-1] == "" {
		line--
	}
	doc.fail(place{line: line, column: 1}, message, hints...)
}

// Problems returns what is wrong with the file, in its order.
func (doc *Document) Problems() Problems {
	slices.SortStableFunc(doc.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return doc.problems
}

// maxProblems is how many errors, and how many warnings, of one file are reported: each may be found in a line of
// megabytes.
const maxProblems = 500

// fail adds an error at a place. The message says what is wrong, the hints how to fix it. It returns false, as readers
// do for a value that they could not read.
func (doc *Document) fail(at place, message string, hints ...string) bool {
	doc.add(at, false, message, hints)
	return false
}

// add adds a problem, once: what an alias repeats is wrong in one place only.
func (doc *Document) add(at place, warning bool, message string, hints []string) {
	id := fmt.Sprintf("%d:%d %s", at.line, at.column, message)
	if doc.seen[id] || doc.counts[warning] == maxProblems {
		return
	}
	doc.seen[id] = true
	doc.counts[warning]++
	p := Problem{File: doc.name, Warning: warning, Message: masked(doc.kind.Mask, message)}
	if at.line > 0 && at.line <= len(doc.lines) {
		p.Source = masked(doc.kind.MaskLine, doc.lines[at.line-1])
		p.Line, p.Column = at.line, min(max(at.column, 1), utf8.RuneCountInString(p.Source)+1)
		p.Length = max(doc.length(at), 1)
	}
	for _, hint := range hints {
		if hint != "" {
			p.Hints = append(p.Hints, masked(doc.kind.Mask, hint))
		}
	}
	if at.alias > 0 {
		p.Hints = append(p.Hints, fmt.Sprintf("used through the alias at %s:%d", doc.name, at.alias))
	}
	doc.problems = append(doc.problems, p)
}

func masked(mask func(string) string, text string) string {
	if mask == nil {
		return text
	}
	return mask(text)
}

// Add adds mistakes at the positions of their paths, or at the key of what lacks a value there. The paths begin at
// prefix, itself a path. A mistake that may follow from one that was reported before is left out: if a value on one
// of its paths could not be read, or if it is about what a map lacks and the map has an unknown key.
func (doc *Document) Add(prefix string, mistakes ...suggest.Mistake) {
	for _, m := range mistakes {
		spot := doc.find(join(prefix, m.Path))
		sound := spot.sound || m.OnKey && !m.Lacks && spot.unread // its key is there all the same
		for _, path := range m.Also {
			sound = sound && doc.Sound(join(prefix, path))
		}
		if !sound || m.Lacks && spot.strange {
			continue
		}
		at := spot.at
		if m.OnKey {
			at = spot.key
		}
		doc.add(at, m.Warning, m.Message, m.Hints)
	}
}

// Sound reports whether everything at a path could be read; what is absent could.
func (doc *Document) Sound(path string) bool { return doc.find(path).sound }

// Has reports whether there is a value at a path, and everything there could be read.
func (doc *Document) Has(path string) bool {
	spot := doc.find(path)
	return spot.sound && !spot.absent
}

// Position returns where the key of a path stands, or an element of a list, as "file:line".
func (doc *Document) Position(path string) string { return doc.position(doc.find(path).key) }
