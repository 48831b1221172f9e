package reply

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
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

// refusal is what a client is told if its request is refused for a reason.
type refusal struct {
	status   int
	sentence string
}

// refusals has a row for each reason that refuses. What is wrong with a credential is for logs and metrics; the client is not told.
var refusals = map[Reason]refusal{
	ReasonNoPolicy: {http.StatusForbidden, "No policy applies to this request."},
	ReasonHost:     {http.StatusBadRequest, "The host is ambiguous: it is not a name or an IP address with an optional port."},
	ReasonPath: {http.StatusBadRequest, "The path is ambiguous: it has empty or dot segments, parameters, backslashes, slashes or " +
		"percent signs that are encoded, or bytes that are not UTF-8."},
	ReasonDenied:          {http.StatusForbidden, "This is not allowed."},
	ReasonAbsent:          {http.StatusUnauthorized, "A credential is needed."},
	ReasonInvalid:         {http.StatusForbidden, invalidCredential},
	ReasonExpired:         {http.StatusForbidden, invalidCredential},
	ReasonNotYet:          {http.StatusForbidden, invalidCredential},
	ReasonDisabled:        {http.StatusForbidden, invalidCredential},
	ReasonScope:           {http.StatusForbidden, "The credential does not allow this."},
	ReasonOverLimit:       {http.StatusTooManyRequests, "The rate limit is exceeded."},
	ReasonRefusedTooOften: {http.StatusTooManyRequests, "The rate limit is exceeded."},
	ReasonUndecided:       {http.StatusServiceUnavailable, "This cannot be decided at the moment."},
}

const invalidCredential = "The credential is not valid."

// Reasons lists all reasons.
func Reasons() []Reason {
	return slices.AppendSeq([]Reason{ReasonAllowed, ReasonOpen, ReasonAnonymous}, maps.Keys(refusals))
}

// refusal is what a client is told. What is not in the list is denied.
func (r Reason) refusal() refusal { return cmp.Or(refusals[r], refusals[ReasonDenied]) }

// Status is the HTTP status of a refusal, unless a policy sets another one.
func (r Reason) Status() int { return r.refusal().status }

// Sentence tells a client why its request is refused. limits is what the limiter decided, nil if it was not asked.
func (r Reason) Sentence(limits *ratelimit.Result) string {
	if limits != nil && r.Status() == http.StatusTooManyRequests {
		return detail(limits)
	}
	return r.refusal().sentence
}

// Body is the body of a refusal with this status.
func (r Reason) Body(status int, limits *ratelimit.Result) []byte {
	if limits != nil && r.Status() == http.StatusTooManyRequests {
		return Problem(limits)
	}
	return problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: r.Sentence(nil)}.body()
}
