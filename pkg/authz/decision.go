package authz

import (
	"time"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Verdict is the outcome for a request. The zero value refuses.
type Verdict uint8

// The verdicts.
const (
	Refused Verdict = iota
	Allowed
	// Undecided means that the store could not decide and on_store_error denies, or that the time was too short.
	Undecided
	// Answered means that the service itself answers the request, which the upstream never sees.
	Answered
)

// String returns the verdict in one word, for logs and explanations.
func (v Verdict) String() string {
	return [...]string{Refused: "refused", Allowed: "allowed", Undecided: "undecided", Answered: "answered"}[v]
}

// Decision is the answer to a request. Its zero value refuses.
type Decision struct {
	Verdict Verdict
	Reason  reply.Reason
	// Cause is what is wrong with the credential, one word for logs; "" if that is unknown. The client does not learn it.
	Cause string
	// Absent are the claims that the policy names, and that the token lacks or has in another form.
	Absent []string
	// ShadowDenied is the place of an access rule that would have refused the request if it were enforced for it: see
	// Access.Enforce. It is "" for none, and for a request that another access rule refuses.
	ShadowDenied string
	// Status is the HTTP status of the answer, unless the request is Allowed.
	Status int
	// Domain is the domain of the policy that decided.
	Domain string
	// Identity is the identity of the client, the zero value if unknown.
	Identity credential.Identity
	// Limits is the result of the limiter; nil without one.
	Limits *ratelimit.Result
	// ToUpstream are headers to set on the request, whatever the client sent. Strip and Remove are headers to remove from
	// it: credentials, and headers that a client must not set. Strip has those that the policy removes from each request,
	// Remove all others. No header is both set and removed.
	ToUpstream []reply.Header
	Strip      *httpheader.Names
	Remove     []string
	// RemoveQuery are query parameters to remove from the request.
	RemoveQuery []string
	// ToClient are headers for the response, of a refusal or of the upstream.
	ToClient []reply.Header
	// Body and ContentType are those of the answer, unless the request is Allowed.
	Body        []byte
	ContentType string
	// Delay is how long to hold the answer, in µs, so that requests leave at the rate of a leaky bucket (max_delay).
	Delay int64
}

// LogReason returns the reason for logs and metrics: that of a denial in shadow, or Reason.
func (d *Decision) LogReason() reply.Reason {
	if d.ShadowDenied != "" && d.Verdict == Allowed {
		return reply.ReasonShadowDenied
	}
	return d.Reason
}

// Checked is a request and the answer of a transport, for logs and traces. None of it may be changed or kept.
type Checked struct {
	Request  *Request
	Decision *Decision
	// Query is the query for the limiter, and Result is its answer. They are nil if no limit was asked.
	Query  *ratelimit.Query
	Result *ratelimit.Result
	// Status is the HTTP status of the refusal, 0 if the request is allowed.
	Status int
	// DroppedHeaders counts the headers that could not be sent.
	DroppedHeaders int
	// Took is the time from the request to the answer.
	Took time.Duration
}
