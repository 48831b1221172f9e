package credential_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

func TestCheckText(t *testing.T) {
	for _, text := range []string{
		"root", "ann lee", "ann@example.org", "CN=ann,O=shop", "spiffe://example.org/ns/a/sa/b",
		"Jürgen", "王", "e\u0301", "a\u200db", "-", "0",
		// Persian and Hindi words with a (non-)joiner
		"\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0915\u094d\u200d\u0937",
	} {
		if err := credential.CheckText(text); err != nil {
			t.Errorf("%q: got %v, want no error", text, err)
		}
	}
	const (
		ends    = "without white space at its ends"
		control = "without control characters"
		unseen  = "without invisible characters"
	)
	for _, c := range []struct{ text, want string }{
		{"", "want a text"},
		{" ", ends}, {"root ", ends}, {" root", ends}, {"root\t", ends}, {"\troot", ends},
		{"root\n", ends}, {"root\r\n", ends},
		// white space of other scripts
		{"root\u00a0", ends}, {"root\u0085", ends}, {"\u3000root", ends}, {"root\u2028", ends},
		{"root\ufeff", ends}, {"\u200broot", ends}, {"\u202eroot", ends}, // invisible characters
		{"ro\tot", control}, {"ro\not", control}, {"root\x00", control}, {"ro\x7fot", control},
		{"ro\u0085ot", control}, {"ro\u2028ot", control},
		{"ro\u200bot", unseen}, {"ro\u00adot", unseen}, {"ro\ufeffot", unseen}, {"ro\u2060ot", unseen},
		{"ro\U000e0041ot", unseen},
		{"ro\u202eot", unseen}, {"ro\u2066ot", unseen}, {"ro\u200fot", unseen}, {"ro\u061cot", unseen}, // directions
		{"ro\u034fot", unseen}, {"ro\u115fot", unseen}, {"ro\u3164ot", unseen}, {"ro\uffa0ot", unseen},
		{"ro\u2800ot", unseen},
		{"ro\ufe0fot", unseen}, {"ro\U000e0100ot", unseen}, {"ro\u180eot", unseen},
		{"root\u3164", ends}, {"\u2800root", ends}, {"root\U000e0100", ends}, {"root\u200d", ends}, {"\u200croot", ends},
		// joiners outside of words
		{"ann \u200dlee", unseen}, {"ann\u200c lee", unseen}, {"a\u200d\u200db", unseen}, {"a\u200d\u200cb", unseen},
		{"\ufffd", "U+FFFD"}, {"ro\ufffdot", "U+FFFD"}, {"root\ufffd", "U+FFFD"},
		{"root\xff", "UTF-8"}, {"\xc0root", "UTF-8"},
	} {
		if err := credential.CheckText(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: got %v, want an error with %q", c.text, err, c.want)
		}
	}
}
