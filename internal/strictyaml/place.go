package strictyaml

import (
	"fmt"
	"regexp"
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

// inQuotes matches a text in quotes at the beginning of a line: up to its end if it continues in the next one.
var inQuotes = regexp.MustCompile(`^("(\\.|[^\\"])*("|\\?$)|'(''|[^'])*('|$))`)

// length returns how many characters of its line the value at a place takes. The parser knows only where a value
// begins.
func (doc *Document) length(at place) int {
	if n := at.node; n != nil && (n.Kind == yaml.ScalarNode || n.Kind == yaml.AliasNode) {
		rest := doc.textAt(at)
		text := inQuotes.FindString(rest)
		switch {
		case text != "":
		case n.Kind == yaml.ScalarNode && strings.HasPrefix(rest, n.Value) && n.Value != "":
			text = n.Value
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

// firstWord returns a text up to the first space or bracket.
func firstWord(text string) string {
	if end := strings.IndexAny(text, " \t,]}"); end >= 0 {
		return text[:end]
	}
	return text
}

// position names a place in another problem's hint.
func (doc *Document) position(at place) string { return fmt.Sprintf("%s:%d", doc.name, at.line) }
