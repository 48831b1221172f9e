package suggest_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/suggest"
)

func TestClosest(t *testing.T) {
	for _, c := range []struct{ written, words, want string }{
		{"mintue", "minute month", "minute"},
		{"min", "minute month", "minute"},
		{"m", "minute month", ""},
		{"requestsPerUnit", "requests_per_unit", "requests_per_unit"},
		{"sliding_window", "sliding_window_log sliding_window_counter", ""},
		{"TOKEN-BUCKET", "token_bucket leaky_bucket", "token_bucket"},
		{"xyz", "key value", ""},
		{"", "key", ""},
	} {
		if got := suggest.Closest(c.written, strings.Fields(c.words)); got != c.want {
			t.Errorf("Closest(%q, %s) = %q, want %q", c.written, c.words, got, c.want)
		}
	}
}

func TestMessages(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{suggest.Quoted("a\tb\x00"), "`a b\ufffd`"},
		{suggest.Quoted(strings.Repeat("é", 61)), "`" + strings.Repeat("é", 60) + "…`"},
		{suggest.OneOf(nil), ""},
		{suggest.OneOf([]string{"a"}), "`a`"},
		{suggest.OneOf([]string{"a", "b"}), "`a` or `b`"},
		{suggest.OneOf([]string{"a", "b", "c"}), "`a`, `b` or `c`"},
		{suggest.DidYouMean("mintue", []string{"minute"}), "did you mean `minute`?"},
		{suggest.DidYouMean("xyz", []string{"minute"}), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
