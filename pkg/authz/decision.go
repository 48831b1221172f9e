package authz

import (
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Verdict says what becomes of a request. The zero value refuses.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota
	Allowed
	// Undecided is neither: a store could not decide and its policy denies, or there was no time.
	Undecided
)

// Decision is the answer to a request. Its zero value refuses.
type Decision struct {
	Verdict Verdict
	Reason  reply.Reason
	// Status is the HTTP status of a refusal.
	Status int
	// Domain is the one whose policy decided.
	Domain string
	// Identity is who asks; its zero value when that is not known.
	Identity Identity
	// Limits is what the limiter said; nil when it was not asked.
	Limits *ratelimit.Result
	// ToUpstream are headers to set on the request, whatever the client sent; Remove those to take from it: credentials, and
	// headers of ours that a client has no business with. A name is never in both.
	ToUpstream []reply.Header
	Remove     []string
	// RemoveQuery are query parameters to take from the request.
	RemoveQuery []string
	// ToClient are headers for the response, of a refusal or of the upstream.
	ToClient []reply.Header
	// Body and ContentType are those of a refusal.
	Body        []byte
	ContentType string
	// Delay is how long to hold the answer, in µs, so that requests leave at the rate of a leaky bucket (max_delay).
	Delay int64
}
