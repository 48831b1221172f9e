package reply

import (
	"net/http"
	"strconv"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Exhausted is what a gRPC client that is over a limit reads: RESOURCE_EXHAUSTED, and with Limited its details.
type Exhausted struct {
	Message string
	// Limited is set if a limit of the limiter denies. The other fields are set only then.
	Limited bool
	// RetryAfter is the content of google.rpc.RetryInfo, in µs: negative for none.
	RetryAfter int64
	// Violations are the content of google.rpc.QuotaFailure.
	Violations []Violation
}

// Violation is a limit that denies: its policy, and its size in words.
type Violation struct{ Policy, Limit string }

// Exhausted returns what a gRPC client reads in place of the body of a refusal with this status, nil for the gRPC
// status that Envoy makes of any other status. A limit denies with RESOURCE_EXHAUSTED, whatever its status.
func (r Reason) Exhausted(status int, limits *ratelimit.Result) *Exhausted {
	if status != http.StatusTooManyRequests && r.Status() != http.StatusTooManyRequests {
		return nil
	}
	e := &Exhausted{Message: r.Sentence(limits), Limited: limits != nil}
	if limits == nil {
		return e
	}
	e.RetryAfter = limits.RetryAfter
	for i := range limits.Limits {
		if l := &limits.Limits[i]; l.Denied() && !l.Limit.Hidden {
			window := strconv.FormatInt(ratelimit.Seconds(l.Window()), 10)
			e.Violations = append(e.Violations, Violation{
				Policy: l.Limit.Policy, Limit: strconv.FormatInt(l.Limit.Requests, 10) + " per " + window + " s",
			})
		}
	}
	return e
}
