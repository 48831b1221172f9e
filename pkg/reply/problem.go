package reply

import (
	"cmp"
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
	by := res.DeniedBy()
	kind, title := quotaExceeded, "Too Many Requests"
	if res.Decider == ratelimit.FromPolicyDeny {
		kind = reducedCapacity
	} else if by != nil && by.Limit.Problem != nil {
		kind = cmp.Or(by.Limit.Problem.Type, kind)
		title = cmp.Or(string(appendFilled(nil, by.Limit.Problem.Title, res, by, by.Limit.Requests)), title)
	}
	b = appendMembers(b, kind, title, by.DeniedStatus())
	begun := len(b)
	b = append(escape(appendDetail(b, res, by), begun), '"')
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

// appendDetail appends one sentence that explains the denial. by is res.DeniedBy.
func appendDetail(b []byte, res *ratelimit.Result, by *ratelimit.Applied) []byte {
	if res.Decider == ratelimit.FromPolicyDeny {
		return appendWait(append(b, "Rate limits cannot be decided at the moment."...), res)
	}
	if by != nil && by.Limit.Problem != nil && by.Limit.Problem.Detail != "" {
		return appendFilled(b, by.Limit.Problem.Detail, res, by, by.Limit.Requests)
	}
	if res.RetryAfter == bucket.Never {
		return append(b, "This request costs more than its limit can ever allow."...)
	}
	if by != nil && by.Limit.Algorithm.Windowless() {
		return appendWait(append(b, "Too many requests at once."...), res)
	}
	return appendWait(append(b, "The rate limit is exceeded."...), res)
}

// appendFilled appends a template with its placeholders replaced (ratelimit.Headers, ratelimit.ProblemDetail).
func appendFilled(b []byte, template string, res *ratelimit.Result, a *ratelimit.Applied, limit int64) []byte {
	for {
		before, after, found := strings.Cut(template, "{")
		b = append(b, before...)
		if !found {
			return b
		}
		var name string
		name, template, _ = strings.Cut(after, "}")
		switch {
		case name == "used":
			b = strconv.AppendInt(b, max(0, limit-a.Decision.Remaining), 10)
		case name == "limit":
			b = strconv.AppendInt(b, limit, 10)
		case name == "remaining":
			b = strconv.AppendInt(b, a.Decision.Remaining, 10)
		case name == "reset":
			b = strconv.AppendInt(b, a.Wait(), 10)
		case name == "window":
			b = strconv.AppendInt(b, ratelimit.Seconds(a.Window()), 10)
		case name == "name" || name == "policy":
			b = append(b, a.Limit.Policy...)
		case name == "retry_after" && res.RetryAfter == bucket.Never:
			b = append(b, "never"...)
		case name == "retry_after":
			b = strconv.AppendInt(b, retryAfter(res), 10)
		default:
			b, template = append(b, '{'), after
		}
	}
}

func retryAfter(res *ratelimit.Result) int64 { return max(1, ratelimit.Seconds(res.RetryAfter)) }

// appendWait appends a sentence with the wait rounded up, in the largest unit with at least two: 90 s, 3 minutes.
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
