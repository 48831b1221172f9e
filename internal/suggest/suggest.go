// Package suggest has what all messages about mistakes share: the mistake itself, a value as it was written, the words
// that are allowed, and the word that was meant by one that is misspelt.
package suggest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// maxQuoted is how much of a value a message repeats.
const maxQuoted = 60

// Quoted is a text as messages repeat it: in backquotes, printable, and not too long.
func Quoted(text string) string {
	runes := []rune(text)
	cut := ""
	if len(runes) > maxQuoted {
		runes, cut = runes[:maxQuoted], "…"
	}
	for i, r := range runes {
		switch {
		case r == '\t' || r == '\n':
			runes[i] = ' '
		case !unicode.IsPrint(r):
			runes[i] = unicode.ReplacementChar
		}
	}
	return "`" + string(runes) + cut + "`"
}

// OneOf lists words as a sentence does: "`a`, `b` or `c`".
func OneOf(words []string) string { return List(words, " or ") }

// List quotes words and puts ", " between them, or last before the last one.
func List(words []string, last string) string {
	var list string
	for i, word := range words {
		switch i {
		case 0:
		case len(words) - 1:
			list += last
		default:
			list += ", "
		}
		list += Quoted(word)
	}
	return list
}

// Value returns the value of the word that a text is, or an error that names the words. values[i] is that of words[i].
func Value[T any](text []byte, words []string, values ...T) (T, error) {
	if i := slices.Index(words, string(text)); i >= 0 {
		return values[i], nil
	}
	return *new(T), errors.New("want " + OneOf(words))
}

// DidYouMean returns a hint that names the word closest to what was written, "" when none is close.
func DidYouMean(written string, words []string) string {
	if word := Closest(written, words); word != "" {
		return "did you mean `" + word + "`?"
	}
	return ""
}

// Closest returns the word that was most likely meant: one that differs in case, hyphens or underscores only, the only
// one that begins with what was written, or the one a few typing mistakes away. It returns "" when there is none.
func Closest(written string, words []string) string {
	w := bare(written)
	if w == "" || len(w) > 64 {
		return ""
	}
	best, bestDistance := "", 1+len(w)/3
	var begun []string
	for _, word := range words {
		if d := Distance(w, bare(word)); d < bestDistance {
			best, bestDistance = word, d
		}
		if strings.HasPrefix(bare(word), w) {
			begun = append(begun, word)
		}
	}
	switch {
	case best == "" && len(begun) == 1:
		return begun[0]
	case bestDistance > 1 && len(begun) > 1:
		return "" // sliding_window could be two things
	}
	return best
}

// bare is a word without what people vary: requestsPerUnit, requests-per-unit and requests_per_unit are the same.
func bare(word string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
}

// Distance is how many letters have to be typed, deleted, changed or swapped with the next to get from a to b.
func Distance(a, b string) int {
	x, y := []rune(a), []rune(b)
	var before []int
	above := make([]int, len(y)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(x); i++ {
		row := make([]int, len(y)+1)
		row[0] = i
		for j := 1; j <= len(y); j++ {
			change := above[j-1]
			if x[i-1] != y[j-1] {
				change++
			}
			row[j] = min(row[j-1]+1, above[j]+1, change)
			if i > 1 && j > 1 && x[i-1] == y[j-2] && x[i-2] == y[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above = above, row
	}
	return above[len(y)]
}

// Counted says how many there are of something: "1 line", "2 lines".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
