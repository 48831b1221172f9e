package strictyaml

import (
	"strings"
	"unicode"
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

	var t, m strings.Builder
	if from > 0 {
		t.WriteRune('…')
		m.WriteByte(' ')
	}
	for i := from; i < to; i++ {
		if r := runes[i]; r == '\t' || unicode.IsPrint(r) {
			t.WriteRune(r)
		} else {
			t.WriteRune(unicode.ReplacementChar) // it may move the cursor or change the terminal
		}
		switch {
		case i >= end:
		case i >= start:
			m.WriteString(strings.Repeat("^", cells(runes[i])))
		case runes[i] == '\t':
			m.WriteByte('\t')
		default:
			m.WriteString(strings.Repeat(" ", cells(runes[i])))
		}
	}
	if to < len(runes) {
		t.WriteRune('…')
	}
	if start >= end {
		m.WriteByte('^')
	}
	return t.String(), m.String()
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
