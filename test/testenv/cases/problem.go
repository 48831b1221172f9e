package cases

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/strictyaml"
)

// CheckProblem fails the test unless the column of a problem is within its line and its text is one printable line.
func CheckProblem(t *testing.T, p strictyaml.Problem) {
	t.Helper()
	if p.Line > 0 && (p.Column < 1 || p.Column > utf8.RuneCountInString(p.Source)+1) {
		t.Errorf("column %d of a line with %d characters: %+v", p.Column, utf8.RuneCountInString(p.Source), p)
	}
	for _, r := range p.String() {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			t.Errorf("%U in the text of a problem: %q", r, p.String())
		}
	}
	if strings.Contains(p.Message, "\n") {
		t.Errorf("the message has several lines: %q", p.Message)
	}
}
