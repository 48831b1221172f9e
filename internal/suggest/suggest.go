package suggest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Quoted returns a text as messages repeat it: in backquotes, printable, and cut after 60 characters.
func Quoted(text string) string { return "`" + Printable(text, 60) + "`" }

// Printable returns a text in one line that a terminal shows as it is, cut after so many characters.
func Printable(text string, most int) string {
	runes := []rune(text)
	cut := ""
	if len(runes) > most {
		runes, cut = runes[:most], "…"
	}
	for i, r := range runes {
		switch {
		case r == '\t' || r == '\n':
			runes[i] = ' '
		case !unicode.IsPrint(r):
			runes[i] = unicode.ReplacementChar
		}
	}
	return string(runes) + cut
}

// Visible returns a text without what a terminal would take for a command, such as an escape sequence.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// OneOf returns words as a sentence lists them: "`a`, `b` or `c`".
func OneOf(words []string) string { return List(words, " or ") }

// List quotes words and joins them with ", ". The last word is joined with last.
func List(words []string, last string) string {
	var quoted []string
	for _, word := range words {
		quoted = append(quoted, Quoted(word))
	}
	if n := len(quoted); n > 1 {
		quoted = append(quoted[:n-2], quoted[n-2]+last+quoted[n-1])
	}
	return strings.Join(quoted, ", ")
}

// Value returns values[i] for a text that is words[i], or an error that names the words.
func Value[T any](text []byte, words []string, values ...T) (T, error) {
	if i := slices.Index(words, string(text)); i >= 0 {
		return values[i], nil
	}
	return *new(T), errors.New("want " + OneOf(words))
}

// Meant returns the end of a message about a word, without that word: the closest of words, or "" if none is close.
func Meant(word string, words ...string) string {
	if closest := Closest(word, words); closest != "" {
		return " (did you mean " + closest + "?)"
	}
	return ""
}

// DidYouMean returns a hint with the closest word, "" if no word is close.
func DidYouMean(written string, words []string) string {
	if word := Closest(written, words); word != "" {
		return "did you mean `" + word + "`?"
	}
	return ""
}

// Closest returns the word that was most likely meant, "" for none. It is a word that differs in case, hyphens or
// underscores only, the only word that begins with the written text, or a word a few typing mistakes away.
func Closest(written string, words []string) string {
	w := bare(written)
	if w == "" || len(w) > 64 {
		return ""
	}
	best, bestDistance := "", 1+len(w)/3
	var completions []string
	for _, word := range words {
		if d := Distance(w, bare(word)); d < bestDistance {
			best, bestDistance = word, d
		}
		if strings.HasPrefix(bare(word), w) {
			completions = append(completions, word)
		}
	}
	switch {
	case best == "" && len(completions) == 1:
		return completions[0]
	case bestDistance > 1 && len(completions) > 1:
		return "" // sliding_window begins two words
	}
	return best
}

// Sure reports whether a text stands for a word: it differs in case, hyphens, underscores and at most one letter.
func Sure(written, word string) bool { return word != "" && Distance(bare(written), bare(word)) <= 1 }

// bare returns a word in lower case without separators: requestsPerUnit and requests-per-unit are the same.
func bare(word string) string {
	return strings.NewReplacer("_", "", "-", "", " ", "").Replace(strings.ToLower(word))
}

// Distance returns the number of edits from a to b: a letter inserted, deleted, changed, or swapped with the next.
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

// Parts are the parts of a text.
type Parts []string

// Add appends a part as fmt.Sprintf does, if it is shown.
func (p *Parts) Add(shown bool, format string, values ...any) {
	if shown {
		*p = append(*p, fmt.Sprintf(format, values...))
	}
}

// Counted returns a number with its noun: "1 line", "2 lines".
func Counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
