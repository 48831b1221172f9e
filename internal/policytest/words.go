package policytest

import (
	"slices"
	"unicode"
)

// word is a word of a line. Columns count from 1, in characters.
type word struct {
	text           string
	column, length int
}

// split returns the words of a line, up to a comment. A word that begins with a quote ends with that quote, and may have
// spaces. ok is false if that quote is missing.
func (p *parser) split(line []rune) (words []word, ok bool) {
	for i := 0; i < len(line); {
		begin, c := i, line[i]
		switch {
		case unicode.IsSpace(c):
			i++
			continue
		case c == '#':
			return words, true
		case c == '\'' || c == '"':
			length := slices.Index(line[i+1:], c)
			if length < 0 {
				p.fail(word{column: i + 1, length: len(line) - i}, "a quote that does not end",
					"a word with spaces is in quotes: 'authorization: Bearer x'")
				return nil, false
			}
			words = append(words, word{string(line[i+1 : i+1+length]), i + 1, length + 2})
			i += length + 2
		default:
			for i < len(line) && !unicode.IsSpace(line[i]) {
				i++
			}
			words = append(words, word{string(line[begin:i]), begin + 1, i - begin})
		}
	}
	return words, true
}
