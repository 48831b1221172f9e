package reply

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// ProblemType is the media type of AppendProblem's body (RFC 9457).
const ProblemType = "application/problem+json"

// The problem types of the IETF draft (section 5).
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// AppendProblem appends the body of a denial: an RFC 9457 problem detail that names the policies that deny. Its member
// retry-after is in seconds, as the header.
func AppendProblem(b []byte, res *ratelimit.Result) []byte {
	var few [usualLimits]*ratelimit.Applied
	shown := appendShown(few[:0], res)
	kind, title := quotaExceeded, "Too Many Requests"
	if res.Decider == ratelimit.FromPolicyDeny {
		kind = reducedCapacity
	} else if template := templateOf(shown); template != nil {
		kind, title = cmp.Or(template.Type, kind), cmp.Or(fill(template.Title, res, shown[0].Limit), title)
	}
	b = appendMembers(b, kind, title, http.StatusTooManyRequests)
	begun := len(b)
	b = append(escape(appendDetail(b, res, shown), begun), '"')
	b = appendPolicies(b, shown)
	if res.RetryAfter != bucket.Never {
		b = strconv.AppendInt(append(b, `,"retry-after":`...), retryAfter(res), 10)
	}
	return append(b, '}')
}

// appendPolicies appends the member that names the policies that deny.
func appendPolicies(b []byte, shown []*ratelimit.Applied) []byte {
	separator := `,"violated-policies":[`
	for _, a := range shown {
		if a.Denied() {
			b = appendQuoted(append(b, separator...), a.Limit.Policy)
			separator = ","
		}
	}
	if separator == "," {
		b = append(b, ']')
	}
	return b
}

// appendDetail appends one sentence that explains the denial. shown is from appendShown.
func appendDetail(b []byte, res *ratelimit.Result, shown []*ratelimit.Applied) []byte {
	if res.Decider == ratelimit.FromPolicyDeny {
		return appendWait(append(b, "Rate limits cannot be decided at the moment."...), res)
	}
	if template := templateOf(shown); template != nil && template.Detail != "" {
		return append(b, fill(template.Detail, res, shown[0].Limit)...)
	}
	if res.RetryAfter == bucket.Never {
		return append(b, "This request costs more than its limit can ever allow."...)
	}
	return appendWait(append(b, "The rate limit is exceeded."...), res)
}

// templateOf returns the own text of the limit that denies longest, nil if it has none.
func templateOf(shown []*ratelimit.Applied) *ratelimit.ProblemDetail {
	if len(shown) > 0 && shown[0].Denied() {
		return shown[0].Limit.Problem
	}
	return nil
}

// fill replaces the placeholders of a template: see ratelimit.ProblemDetail.
func fill(template string, res *ratelimit.Result, l *ratelimit.RuleLimit) string {
	wait := "never"
	if res.RetryAfter != bucket.Never {
		wait = strconv.FormatInt(retryAfter(res), 10)
	}
	return strings.NewReplacer("{retry_after}", wait, "{limit}", strconv.FormatInt(l.Requests, 10),
		"{window}", strconv.FormatInt(ratelimit.Seconds(l.Window), 10), "{policy}", l.Policy).Replace(template)
}

func retryAfter(res *ratelimit.Result) int64 { return max(1, ratelimit.Seconds(res.RetryAfter)) }

// appendWait appends a sentence with the wait rounded up, in the largest unit with at least two of it: 90 s, 3 minutes,
// 11 days.
func appendWait(b []byte, res *ratelimit.Result) []byte {
	wait, name := retryAfter(res), " s."
	for _, unit := range [...]struct {
		name    string
		seconds int64
	}{{" days.", 86_400}, {" hours.", 3_600}, {" minutes.", 60}} {
		if wait >= 2*unit.seconds {
			wait, name = (wait+unit.seconds-1)/unit.seconds, unit.name
			break
		}
	}
	return append(strconv.AppendInt(append(b, " Try again in "...), wait, 10), name...)
}
