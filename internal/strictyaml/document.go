package strictyaml

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/suggest"
)

// Document is a file that was read: its problems, and the places of its values.
type Document struct {
	kind *Kind
	name string
	text string
	// lines are the lines of the text.
	lines []string
	// root is the map or list of the whole file, nil if it could not be read.
	root     *Value
	problems Problems
	absent   []absentKey // that no problem is about yet
	// seen are the places and messages of the problems. counts are the numbers of errors (false) and warnings (true).
	seen   map[string]bool
	counts map[Warning]int
	// last is the position of lastLine. A map and the maps in it often begin in one line: their positions are one text.
	last     string
	lastLine int
}

// NewDocument returns a document of a file without reading its values.
func NewDocument(file File, kind *Kind) *Document {
	text := strings.TrimPrefix(string(file.Content), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return &Document{
		kind: kind, name: file.Name, text: text, lines: strings.Split(text, "\n"),
		seen: map[string]bool{}, counts: map[Warning]int{},
	}
}

// Read reads a file without decoding it into a struct.
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

// Root returns the map or list of the whole file, nil if it could not be read.
func (doc *Document) Root() *Value { return doc.root }

// Fail adds an error at a value, or for the whole file if it is nil. The message names the mistake, the hints the fix.
func (doc *Document) Fail(at *Value, message string, hints ...string) {
	doc.Report(at, Problem{Message: message, Hints: hints})
}

// Warn adds a warning at a value, which must not be nil.
func (doc *Document) Warn(at *Value, message string, hints ...string) {
	doc.Report(at, Problem{Warning: true, Message: message, Hints: hints})
}

// Report adds a problem at a value, or for the whole file if it is nil. The problem has no position yet.
func (doc *Document) Report(at *Value, p Problem) {
	if at == nil {
		at = new(Value)
	}
	doc.add(at.at, p)
}

// At returns the position of a value, which must not be nil: "file:line".
func (doc *Document) At(v *Value) string { return doc.position(v.at) }

// Lines returns the lines of the text, for a file that is not YAML.
func (doc *Document) Lines() []string { return doc.lines }

// AddAt adds a mistake about a word in one of Lines, which count from 0 here. An empty word is the whole line.
func (doc *Document) AddAt(line int, word string, m suggest.Mistake) {
	before, _, _ := strings.Cut(doc.lines[line], word)
	doc.add(place{line: line + 1, column: utf8.RuneCountInString(before) + 1, text: word, word: true},
		Problem{Warning: Warning(m.Warning), Message: m.Message, Hints: m.Hints})
}

// FailAtEnd adds an error at the last line that has text.
func (doc *Document) FailAtEnd(message string, hints ...string) {
	line := strings.Count(strings.TrimRight(doc.text, "\n"), "\n") + 1
	doc.fail(place{line: line, column: 1}, message, hints...)
}

// Problems returns the problems in the order of the file.
func (doc *Document) Problems() Problems {
	for _, a := range doc.absent {
		doc.fail(a.at, a.message, a.hint)
	}
	doc.absent = nil
	slices.SortStableFunc(doc.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return doc.problems
}

// maxProblems is how many errors, and how many warnings, of one file are reported. A line can have megabytes.
const maxProblems = 500

// fail adds an error at a place. It returns false, as readers do for a value that they cannot read.
func (doc *Document) fail(at place, message string, hints ...string) bool {
	doc.add(at, Problem{Message: message, Hints: hints})
	return false
}

// add adds a problem, once for each place and message: aliases can repeat a value.
func (doc *Document) add(at place, p Problem) {
	id := fmt.Sprintf("%d:%d %s", at.line, at.column, p.Message)
	if doc.seen[id] || doc.counts[p.Warning] == maxProblems {
		return
	}
	doc.seen[id] = true
	doc.counts[p.Warning]++
	hints := p.Hints
	p.File, p.Hints, p.Message = doc.name, nil, masked(doc.kind.Mask, p.Message)
	if at.line > 0 && at.line <= len(doc.lines) {
		p.Source = masked(doc.kind.Mask, doc.lines[at.line-1])
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

// Add adds mistakes at the places of their paths, which are relative to the path prefix. A mistake about an absent
// value is placed at the key of the map that lacks it. Add drops a mistake that may follow from an earlier one. That is
// the case if a value on its paths could not be read, or if Lacks is set and the map has an unknown key.
func (doc *Document) Add(prefix string, mistakes ...suggest.Mistake) {
	for _, m := range mistakes {
		spot := doc.find(join(prefix, m.Path))
		sound := spot.sound || m.OnKey && !m.Lacks && spot.unread // the key itself could be read
		doc.covers(m, spot)
		for _, path := range m.Also {
			also := doc.find(join(prefix, path))
			sound = sound && also.sound
			doc.covers(m, also)
		}
		if !sound || m.Lacks && spot.unknownKey {
			continue
		}
		at := spot.at
		if m.OnKey {
			at = spot.key
		}
		doc.add(at, Problem{Warning: Warning(m.Warning), Message: m.Message, Hints: m.Hints})
	}
}

// absentKey is a required key that a map lacks. Problems reports it, unless Add has a mistake about it.
type absentKey struct {
	in            *Value
	name          string
	at            place
	message, hint string
}

// covers drops the absent key that a mistake is about.
func (doc *Document) covers(m suggest.Mistake, s spot) {
	doc.absent = slices.DeleteFunc(doc.absent, func(a absentKey) bool {
		return !m.Warning && a.in == s.in && begins(s.path, a.name)
	})
}

// Sound reports whether everything at a path could be read. An absent value counts as read.
func (doc *Document) Sound(path string) bool { return doc.find(path).sound }

// Position returns the position of the key, or of the element of a list, at a path: "file:line".
func (doc *Document) Position(path string) string { return doc.position(doc.find(path).key) }
