package authz_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz"
)

func TestCheckText(t *testing.T) {
	for _, text := range []string{
		"root", "ann lee", "ann@example.org", "CN=ann,O=shop", "spiffe://example.org/ns/a/sa/b", "Jürgen", "王", "e\u0301", "a\u200db", "-", "0",
	} {
		if err := authz.CheckText(text); err != nil {
			t.Errorf("%q: got %v, want no error", text, err)
		}
	}
	const ends, control = "without white space at its ends", "without control characters"
	for _, c := range []struct{ text, want string }{
		{"", "want a text"},
		{" ", ends}, {"root ", ends}, {" root", ends}, {"root\t", ends}, {"\troot", ends}, {"root\n", ends}, {"root\r\n", ends},
		{"root\u00a0", ends}, {"root\u0085", ends}, {"\u3000root", ends}, {"root\u2028", ends}, // white space of other scripts
		{"root\ufeff", ends}, {"\u200broot", ends}, {"\u202eroot", ends}, // invisible characters
		{"ro\tot", control}, {"ro\not", control}, {"root\x00", control}, {"ro\x7fot", control}, {"ro\u0085ot", control}, {"ro\u2028ot", control},
		{"root\xff", "UTF-8"}, {"\xc0root", "UTF-8"},
	} {
		if err := authz.CheckText(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.text, err, c.want)
		}
	}
}
