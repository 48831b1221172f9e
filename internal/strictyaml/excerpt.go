package strictyaml

import (
	"strings"
	"unicode"

	"github.com/extauthz/extauthz/internal/suggest"
)

// maxExcerpt is how many characters of a line are shown: a JSON file may be one line of megabytes.
const maxExcerpt = 110

// excerpt returns the part of a line around a column, and a second line that marks length characters of it. Tabs stay
// tabs in both lines, and a wide character gets two marks, so that the marks line up on a terminal.
func excerpt(line string, column, length int) (text, marks string) {
	runes := []rune(line)
	start := min(column-1, len(runes))
	from, to := 0, len(runes)
	if len(runes) > maxExcerpt {
		from = min(max(0, start-maxExcerpt/2), len(runes)-maxExcerpt)
		to = from + maxExcerpt
	}
	end := min(start+length, to)

	text = suggest.Visible(string(runes[from:to]))
	if from > 0 {
		text, marks = "…"+text, " "
	}
	if to < len(runes) {
		text += "…"
	}
	for _, r := range runes[from:start] {
		if r == '\t' {
			marks += "\t"
		} else {
			marks += strings.Repeat(" ", cells(r))
		}
	}
	for _, r := range runes[start:max(start, end)] {
		marks += strings.Repeat("^", cells(r))
	}
	if start >= end {
		marks += "^"
	}
	return text, marks
}

// cells returns how many columns of a terminal a character takes.
func cells(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0
	case unicode.In(r, unicode.Han, unicode.Hangul, unicode.Hiragana, unicode.Katakana):
		return 2
	}
	return 1
}
