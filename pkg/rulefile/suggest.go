package rulefile

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// didYouMean returns a hint that names the word closest to what was written, "" when none is close.
func didYouMean(written string, words []string) string {
	if word := suggest.Closest(written, words); word != "" {
		return "did you mean `" + word + "`?"
	}
	return ""
}

// oneOf lists words as a sentence does: "a, b or c".
func oneOf(words []string) string {
	marked := make([]string, len(words))
	for i, word := range words {
		marked[i] = "`" + word + "`"
	}
	last := len(marked) - 1
	if last < 1 {
		return strings.Join(marked, "")
	}
	return strings.Join(slices.Clone(marked[:last]), ", ") + " or " + marked[last]
}
