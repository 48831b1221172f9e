package e2e

import (
	"strings"
	"testing"
)

// block returns the first fenced block of a language that has a text in it, of a page of the documentation: what the page shows is
// what the test runs.
func block(t *testing.T, page, language, has string) string {
	t.Helper()
	for rest := read(t, page); ; {
		_, after, ok := strings.Cut(rest, "\n```"+language+"\n")
		content, after, closed := strings.Cut(after, "\n```")
		if !ok || !closed {
			t.Fatalf("%s has no block of %s with %q", page, language, has)
		}
		if strings.Contains(content, has) {
			return content + "\n"
		}
		rest = after
	}
}
