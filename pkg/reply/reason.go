package reply

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Reason is the cause of an answer, for logs and metrics: one of a few words.
type Reason string

// The reasons.
const (
	ReasonAllowed   Reason = "allowed"    // a valid credential.
	ReasonOpen      Reason = "open"       // no credential, and none is needed.
	ReasonAnonymous Reason = "anonymous"  // no credential, and the policy allows anonymous requests.
	ReasonAbsent    Reason = "absent"     // no credential, but one is needed.
	ReasonInvalid   Reason = "invalid"    // an unknown or changed credential, or more than one.
	ReasonExpired   Reason = "expired"    // a known credential after its time.
	ReasonNotYet    Reason = "not_yet"    // a known credential before its time.
	ReasonDisabled  Reason = "disabled"   // a known credential that is switched off.
	ReasonScope     Reason = "scope"      // a valid credential without a required scope.
	ReasonDenied    Reason = "denied"     // an access rule denies.
	ReasonHost      Reason = "host"       // the upstream may read the host differently.
	ReasonPath      Reason = "path"       // the upstream may read the path differently.
	ReasonTooLarge  Reason = "too_large"  // too many headers, context_extensions or values in metadata.
	ReasonOverLimit Reason = "over_limit" // too many requests.
	// ReasonRefusedTooOften replaces absent, invalid, expired, not_yet and disabled if a limit of `refused` is exceeded.
	ReasonRefusedTooOften Reason = "refused_too_often"
	ReasonUndecided       Reason = "undecided" // the store or the issuer's keys are unavailable.
	ReasonNoPolicy        Reason = "no_policy" // no authz section for the domain.
	ReasonQuota           Reason = "quota"     // no decision: a client has read its quota.
	// ReasonShadowDenied is for logs and metrics: the request is allowed, but a limit or an access rule in shadow would
	// have denied it. Metrics of ext_authz count only access rules.
	ReasonShadowDenied Reason = "shadow_denied"
)

// refusal is the response to a refused request.
type refusal struct {
	status   int
	sentence string
}

// refusals has a row for each reason that refuses. The response never names what is wrong with a credential.
var refusals = map[Reason]refusal{
	ReasonNoPolicy: {http.StatusForbidden, "No policy applies to this request."},
	ReasonHost: {http.StatusBadRequest,
		"The host is ambiguous: it is not a name or an IP address with an optional port."},
	ReasonPath: {http.StatusBadRequest, "The path is ambiguous: it has empty or dot segments, parameters, backslashes, " +
		"slashes or percent signs that are encoded, or bytes that are not UTF-8."},
	ReasonTooLarge: {http.StatusRequestHeaderFieldsTooLarge,
		"The request has too many headers, or too much other data for a decision."},
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
	passing := []Reason{ReasonAllowed, ReasonOpen, ReasonAnonymous, ReasonQuota, ReasonShadowDenied}
	return slices.AppendSeq(passing, maps.Keys(refusals))
}

// refusal returns the response for the reason. A reason without a row is denied.
func (r Reason) refusal() refusal { return cmp.Or(refusals[r], refusals[ReasonDenied]) }

// Status returns the HTTP status of a refusal, unless a policy sets another one.
func (r Reason) Status() int { return r.refusal().status }

// SafeStatus returns a status that was chosen for a refusal, unless it is not an error. So no mistake makes a refusal
// look like a success. An undecided request has an error of a server.
func (r Reason) SafeStatus(chosen int) int {
	least, usual := 400, http.StatusForbidden
	if r == ReasonUndecided {
		least, usual = 500, http.StatusServiceUnavailable
	}
	if chosen < least || chosen > 599 {
		return usual
	}
	return chosen
}

// AddRetryAfter adds Retry-After to the headers of an undecided request, unless they have it. It is short, so that
// clients return soon after the store does.
func (r Reason) AddRetryAfter(headers []Header) []Header {
	isRetryAfter := func(h Header) bool { return h.Name == retryAfterName }
	if r != ReasonUndecided || slices.ContainsFunc(headers, isRetryAfter) {
		return headers
	}
	return append(headers, Header{retryAfterName, "1"})
}

// Sentence returns the sentence for the client. limits is the limiter's decision, nil if there is none.
func (r Reason) Sentence(limits *ratelimit.Result) string {
	if limits != nil && r.Status() == http.StatusTooManyRequests {
		return string(appendDetail(nil, limits, limits.DeniedBy()))
	}
	return r.refusal().sentence
}

// AppendBody appends the body of a refusal with this status.
func (r Reason) AppendBody(b []byte, status int, limits *ratelimit.Result) []byte {
	if limits != nil && r.Status() == http.StatusTooManyRequests {
		return AppendProblem(b, limits)
	}
	return append(appendMembers(b, "about:blank", http.StatusText(status), status), r.Sentence(nil)+`"}`...)
}
