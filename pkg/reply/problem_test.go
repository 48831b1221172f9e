package reply_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
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
		body := string(reply.AppendProblem(nil, &ratelimit.Result{RetryAfter: max(1, wait.Microseconds())}))
		if !strings.Contains(body, want) {
			t.Errorf("a wait of %v: got %s, want %q in it", wait, body, want)
		}
	}
}

// TestProblemIsValid checks that texts of templates and names are escaped as encoding/json does.
func TestProblemIsValid(t *testing.T) {
	for _, text := range []string{
		"plain", "Ünicode", `quotes " and \\`, "<b>&</b>", "control \x00\n\x7f", "not UTF-8 \xff", "line \u2028",
	} {
		limit := &ratelimit.RuleLimit{Policy: text, Problem: &ratelimit.ProblemDetail{Type: text, Title: text, Detail: text}}
		denied := ratelimit.Applied{Limit: limit, Decision: bucket.Decision{RetryAfter: 1}}
		got := reply.AppendProblem([]byte("before"), &ratelimit.Result{
			RetryAfter: 1, Limits: []ratelimit.Applied{denied, {Limit: limit, Decision: bucket.Decision{Allowed: true}}, denied},
		})
		want, err := json.Marshal(struct {
			Type       string   `json:"type"`
			Title      string   `json:"title"`
			Status     int      `json:"status"`
			Detail     string   `json:"detail"`
			Policies   []string `json:"violated-policies"`
			RetryAfter int64    `json:"retry-after"`
		}{text, text, 429, text, []string{text, text}, 1})
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%q: got  %s\nwant %s, %v", text, got, want, err)
		}
	}
}
