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

// Reason says why, for logs and metrics: one of few words.
type Reason string

// The reasons.
const (
	ReasonAllowed   Reason = "allowed"    // with a valid credential
	ReasonOpen      Reason = "open"       // without one, where none is needed
	ReasonAnonymous Reason = "anonymous"  // without one, where nobody may pass too
	ReasonAbsent    Reason = "absent"     // no credential
	ReasonInvalid   Reason = "invalid"    // a credential that is none of ours, was changed, or came twice
	ReasonExpired   Reason = "expired"    // one of ours, after its time
	ReasonNotYet    Reason = "not_yet"    // one of ours, before its time
	ReasonDisabled  Reason = "disabled"   // one of ours, switched off
	ReasonScope     Reason = "scope"      // a valid one that lacks a scope
	ReasonDenied    Reason = "denied"     // a rule of access denies
	ReasonHost      Reason = "host"       // a host that the upstream may read otherwise
	ReasonPath      Reason = "path"       // a path that the upstream may read otherwise
	ReasonOverLimit Reason = "over_limit" // too many requests
	// ReasonRefusedTooOften takes the place of absent, invalid, expired, not_yet and disabled when a limit of `refused`
	// is exceeded.
	ReasonRefusedTooOften Reason = "refused_too_often"
	ReasonUndecided       Reason = "undecided" // the store or the issuer's keys are unavailable
	ReasonNoPolicy        Reason = "no_policy" // no authz section for the domain
)

// Decision is the answer to a request. Its zero value refuses.
type Decision struct {
	Verdict Verdict
	Reason  Reason
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
