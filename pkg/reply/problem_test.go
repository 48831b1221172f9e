package reply_test

import (
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// TestProblemStatesTheWaitInWords also checks that the wait is never rounded down.
func TestProblemStatesTheWaitInWords(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		time.Millisecond:                   "Try again in 1 s.",
		119 * time.Second:                  "Try again in 119 s.",
		2 * time.Minute:                    "Try again in 2 minutes.",
		2*time.Minute + time.Second:        "Try again in 3 minutes.",
		119 * time.Minute:                  "Try again in 119 minutes.",
		2 * time.Hour:                      "Try again in 2 hours.",
		947_468 * time.Second:              "Try again in 11 days.",
		48*time.Hour - time.Second:         "Try again in 48 hours.",
		48 * time.Hour:                     "Try again in 2 days.",
		365*24*time.Hour - time.Nanosecond: "Try again in 365 days.",
	} {
		body := string(reply.Problem(&ratelimit.Result{RetryAfter: max(1, wait.Microseconds())}))
		if !strings.Contains(body, want) {
			t.Errorf("a wait of %v: got %s, want %q in it", wait, body, want)
		}
	}
}
