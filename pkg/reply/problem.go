package reply

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// ProblemType is the media type of Problem's body (RFC 9457).
const ProblemType = "application/problem+json"

// The problem types of the IETF draft (section 5).
const (
	quotaExceeded   = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	reducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Policies []string `json:"violated-policies,omitempty"`
	// RetryAfter is in seconds, as in the header. It is an extension member.
	RetryAfter int64 `json:"retry-after,omitempty"`
}

// Problem returns the body of a denial: an RFC 9457 problem detail that names the policies that deny.
func Problem(res *ratelimit.Result) []byte {
	p := problem{Type: quotaExceeded, Title: "Too Many Requests", Status: 429, Detail: detail(res)}
	for _, a := range shownLimits(res) {
		if a.Denied() {
			p.Policies = append(p.Policies, a.Limit.Policy)
		}
	}
	if res.RetryAfter != bucket.Never {
		p.RetryAfter = retryAfter(res)
	}
	if res.Source == ratelimit.FromPolicyDeny {
		p.Type = reducedCapacity
		return p.body()
	}
	if l, template := template(res); template != nil {
		p.Type = cmp.Or(template.Type, p.Type)
		p.Title = cmp.Or(fill(template.Title, res, l), p.Title)
	}
	return p.body()
}

// detail returns one sentence that explains the denial.
func detail(res *ratelimit.Result) string {
	if res.Source == ratelimit.FromPolicyDeny {
		return fmt.Sprintf("Rate limits cannot be decided at the moment. Try again in %s.", inWords(retryAfter(res)))
	}
	if l, template := template(res); template != nil && template.Detail != "" {
		return fill(template.Detail, res, l)
	}
	if res.RetryAfter == bucket.Never {
		return "This request costs more than its limit can ever allow."
	}
	return fmt.Sprintf("The rate limit is exceeded. Try again in %s.", inWords(retryAfter(res)))
}

// template returns the limit that denies longest and its own text, nil if it has none.
func template(res *ratelimit.Result) (*ratelimit.RuleLimit, *ratelimit.Problem) {
	if list := shownLimits(res); len(list) > 0 && list[0].Denied() {
		return list[0].Limit, list[0].Limit.Problem
	}
	return nil, nil
}

// fill replaces the placeholders of a template: see ratelimit.Problem.
func fill(template string, res *ratelimit.Result, l *ratelimit.RuleLimit) string {
	wait := "never"
	if res.RetryAfter != bucket.Never {
		wait = strconv.FormatInt(retryAfter(res), 10)
	}
	return strings.NewReplacer("{retry_after}", wait, "{limit}", strconv.FormatInt(l.Requests, 10),
		"{window}", strconv.FormatInt(ratelimit.Seconds(l.Window), 10), "{policy}", l.Policy).Replace(template)
}

func retryAfter(res *ratelimit.Result) int64 { return max(1, ratelimit.Seconds(res.RetryAfter)) }

// inWords returns a wait rounded up, in the largest unit with at least two of it: "90 s", "3 minutes", "11 days".
func inWords(seconds int64) string {
	for _, unit := range []struct {
		name    string
		seconds int64
	}{{"days", 86_400}, {"hours", 3_600}, {"minutes", 60}} {
		if seconds >= 2*unit.seconds {
			return fmt.Sprintf("%d %s", (seconds+unit.seconds-1)/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%d s", seconds)
}

func (p problem) body() []byte {
	body, _ := json.Marshal(p) // no error: strings and integers only
	return body
}
