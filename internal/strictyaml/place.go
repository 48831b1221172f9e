package strictyaml

import (
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// place is a position in a file. Lines and columns count from 1. The zero value is no place.
type place struct {
	line, column int
	// text is the text of a single value or a key at the place. word means that there is one, or an alias (*name).
	text string
	word bool
	// alias is the line of the alias (*name) that led to this place, 0 for none.
	alias int
}

// inQuotes matches a quoted text at the beginning of a line, up to the end of the line if the text goes on below.
var inQuotes = regexp.MustCompile(`^("(\\.|[^\\"])*("|\\?$)|'(''|[^'])*('|$))`)

// length returns how many characters of its line a value takes. The parser knows only where a value begins.
func (doc *Document) length(at place) int {
	if at.word {
		rest := doc.textAt(at)
		text := inQuotes.FindString(rest)
		switch {
		case text != "":
		case at.text != "" && strings.HasPrefix(rest, at.text):
			text = at.text
		default:
			text = firstWord(rest)
		}
		return utf8.RuneCountInString(text)
	}
	return 1
}

// textAt returns the rest of the line from a place on.
func (doc *Document) textAt(at place) string {
	if at.line < 1 || at.line > len(doc.lines) {
		return ""
	}
	line := doc.lines[at.line-1]
	for range at.column - 1 {
		_, size := utf8.DecodeRuneInString(line)
		line = line[size:]
	}
	return line
}

// firstWord returns a text up to its first space, comma or closing bracket.
func firstWord(text string) string {
	if end := strings.IndexAny(text, " \t,]}"); end >= 0 {
		return text[:end]
	}
	return text
}

// position returns a place as "file:line".
func (doc *Document) position(at place) string {
	if doc.last == "" || doc.lastLine != at.line {
		doc.last, doc.lastLine = doc.name+":"+strconv.Itoa(at.line), at.line
	}
	return doc.last
}
