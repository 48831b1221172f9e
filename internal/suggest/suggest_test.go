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
