package rulefile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"
)

// place is where something stands in a file, by line and column from 1. Its zero value is no place.
type place struct {
	line, column int
	// node is what the parser found there; nil for a place that is no value or key.
	node *yaml.Node
	// alias is the line of the alias (*name) through which this place was reached, 0 for none.
	alias int
}

// report collects the problems of one file.
type report struct {
	grammar
	name     string
	text     string
	lines    []string
	problems Problems
	seen     map[string]bool
	// strange are the maps with keys that are unknown: nothing is to be said about what they lack.
	strange map[place]bool
	// root is the file as it was read, nil when nothing could be made of it. unread are the keys of its maps whose values could
	// not be read, dropped the elements of its lists that could not.
	root    *value
	unread  map[*value][]string
	dropped map[*value]bool
	counts  map[Severity]int
}

// maxProblems is how many errors, and how many warnings, of one file are told: each may be found in a line of megabytes.
const maxProblems = 500

func newReport(f File, g grammar) *report {
	text := strings.TrimPrefix(string(f.Content), "\ufeff")
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	return &report{
		grammar: g, name: f.Name, text: text, lines: strings.Split(text, "\n"), seen: map[string]bool{}, strange: map[place]bool{},
		unread: map[*value][]string{}, dropped: map[*value]bool{}, counts: map[Severity]int{},
	}
}

// fail adds an error at a place. The message says what is wrong, the hints how it is put right.
func (r *report) fail(at place, message string, hints ...string) {
	r.add(at, Error, message, hints)
}

// warn adds a warning at a place.
func (r *report) warn(at place, message string, hints ...string) {
	r.add(at, Warning, message, hints)
}

// add adds a problem, once: what an alias repeats is wrong only in one place.
func (r *report) add(at place, severity Severity, message string, hints []string) {
	id := fmt.Sprintf("%d:%d:%s", at.line, at.column, message)
	if r.seen[id] || r.counts[severity] == maxProblems {
		return
	}
	r.seen[id] = true
	r.counts[severity]++
	p := Problem{File: r.name, Severity: severity, Message: masked(r.mask, message)}
	if at.line > 0 && at.line <= len(r.lines) {
		p.Source = masked(r.maskLine, r.lines[at.line-1])
		p.Line, p.Column, p.Length = at.line, min(max(at.column, 1), utf8.RuneCountInString(p.Source)+1), max(r.length(at), 1)
	}
	for _, hint := range hints {
		if hint != "" {
			p.Hints = append(p.Hints, masked(r.mask, hint))
		}
	}
	if at.alias > 0 {
		p.Hints = append(p.Hints, fmt.Sprintf("used through the alias at %s:%d", r.name, at.alias))
	}
	r.problems = append(r.problems, p)
}

func masked(mask func(string) string, text string) string {
	if mask == nil {
		return text
	}
	return mask(text)
}

// length is how many characters of its line the value at a place takes. The parser knows where a value begins only.
func (r *report) length(at place) int {
	n := at.node
	if n == nil || n.Kind != yaml.ScalarNode && n.Kind != yaml.AliasNode {
		return 1
	}
	rest := r.textAt(at)
	switch {
	case n.Kind == yaml.AliasNode:
		return len([]rune("*" + n.Value))
	case strings.HasPrefix(rest, `"`), strings.HasPrefix(rest, `'`):
		return quotedLength(rest)
	case n.Value != "" && strings.HasPrefix(rest, n.Value):
		return len([]rune(n.Value))
	}
	return len([]rune(r.wordAt(at)))
}

// quotedLength is how long the text in quotes at the beginning of a line is, up to its end when it goes on in the next one.
func quotedLength(rest string) int {
	line := []rune(rest)
	for i := 1; i < len(line); i++ {
		switch {
		case line[i] == '\\' && line[0] == '"':
			i++
		case line[i] != line[0]:
		case line[0] == '\'' && i+1 < len(line) && line[i+1] == '\'':
			i++
		default:
			return i + 1
		}
	}
	return len(line)
}

// textAt is the rest of the line from a place on.
func (r *report) textAt(at place) string {
	if at.line < 1 || at.line > len(r.lines) {
		return ""
	}
	line := r.lines[at.line-1]
	for range at.column - 1 {
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	return line
}

// wordAt is the rest of the line from a place on, up to the first space or bracket.
func (r *report) wordAt(at place) string {
	rest := r.textAt(at)
	if end := strings.IndexAny(rest, " \t,]}"); end >= 0 {
		rest = rest[:end]
	}
	return rest
}

// position names a place in another problem's hint.
func (r *report) position(at place) string {
	return fmt.Sprintf("%s:%d", r.name, at.line)
}

// sorted returns the problems in the order of the file.
func (r *report) sorted() Problems {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return r.problems
}

// checkText reports bytes that no YAML file may have: what is not UTF-8, control characters, and the line breaks that only
// some versions of YAML know.
func (r *report) checkText() bool {
	line, column := 1, 0
	for i, c := range r.text {
		if c == '\n' {
			line, column = line+1, 0
			continue
		}
		column++
		at := place{line: line, column: column}
		if c == utf8.RuneError && !strings.HasPrefix(r.text[i:], "\ufffd") {
			r.fail(at, fmt.Sprintf("byte 0x%02x is not UTF-8", r.text[i]), "save the file as UTF-8")
			return false
		}
		if forbidden(c) {
			r.fail(at, fmt.Sprintf("control character %U", c), "delete it, or write it as an escape between double quotes")
			return false
		}
	}
	return true
}

func forbidden(c rune) bool {
	switch c {
	case '\t':
		return false
	case 0x7f, 0x85, 0x2028, 0x2029, 0xfeff:
		return true
	}
	return c < 0x20 || c > 0x7f && c < 0xa0
}
