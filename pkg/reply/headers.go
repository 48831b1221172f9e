package reply

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// DraftVersion is the version of draft-ietf-httpapi-ratelimit-headers that RateLimit and RateLimit-Policy follow.
const DraftVersion = 11

// Header is one header of a response.
type Header struct{ Name, Value string }

// Set is a family of rate limit headers.
type Set string

// The sets (RESPONSE_HEADERS).
const (
	// Draft sends RateLimit and RateLimit-Policy of the IETF draft.
	Draft Set = "draft"
	// Triple sends RateLimit-Limit, -Remaining and -Reset, under the names of LIMIT_LIMIT_HEADER and its like.
	Triple Set = "triple"
	// X sends X-RateLimit-Limit, -Remaining and -Reset, with the seconds until the reset.
	X Set = "x"
	// Spring sends the headers of Spring Cloud Gateway.
	Spring Set = "spring"
)

// Sets lists all sets.
var Sets = []Set{Draft, Triple, X, Spring}

// Headers selects the headers to send. The zero value sends none.
type Headers struct {
	// Sets are sent together. With any of them, a denial also has Retry-After.
	Sets []Set
	// LimitName, RemainingName and ResetName are the names of Triple.
	LimitName, RemainingName, ResetName string
}

// Names returns the names of the headers that can be sent, in lower case, without Retry-After.
func (h Headers) Names() []string {
	var names []string
	for _, set := range h.Sets {
		switch set {
		case Draft:
			names = append(names, "ratelimit", "ratelimit-policy")
		case Triple:
			names = append(names, strings.ToLower(h.LimitName), strings.ToLower(h.RemainingName), strings.ToLower(h.ResetName))
		case X:
			names = append(names, "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
		case Spring:
			names = append(names, "x-ratelimit-remaining", "x-ratelimit-replenish-rate", "x-ratelimit-burst-capacity",
				"x-ratelimit-requested-tokens")
		}
	}
	return names
}

// For returns the headers for a result. It leaves out rules in shadow mode. Names are in lower case, except for those
// that Headers has.
func (h Headers) For(res *ratelimit.Result) []Header {
	if len(h.Sets) == 0 {
		return nil
	}
	shown := shownLimits(res)
	if len(shown) == 0 {
		return h.retryAfter(nil, res, nil)
	}
	list := make([]Header, 0, 4)
	for _, set := range h.Sets {
		switch set {
		case Draft:
			list = appendDraft(list, shown)
		case Triple:
			list = h.AppendTriple(list, shown[0], shown[0].Wait())
		case X:
			x := Headers{
				LimitName: "x-ratelimit-limit", RemainingName: "x-ratelimit-remaining", ResetName: "x-ratelimit-reset",
			}
			list = x.AppendTriple(list, shown[0], shown[0].Wait())
		case Spring:
			list = appendSpring(list, shown[0])
		}
	}
	return h.retryAfter(list, res, shown)
}

// shownLimits returns the limits that a client sees, the tightest first.
func shownLimits(res *ratelimit.Result) []*ratelimit.Applied {
	list := make([]*ratelimit.Applied, 0, len(res.Limits))
	for i := range res.Limits {
		if !res.Limits[i].Shadow {
			list = append(list, &res.Limits[i])
		}
	}
	slices.SortStableFunc(list, ratelimit.Compare)
	return list
}

// appendDraft appends one item for each policy. If a policy has several buckets, the item is for the tightest one.
func appendDraft(list []Header, shown []*ratelimit.Applied) []Header {
	limits, policies := make([]byte, 0, 64), make([]byte, 0, 64)
	for i, a := range shown {
		samePolicy := func(b *ratelimit.Applied) bool { return a.Limit.Policy == b.Limit.Policy }
		if slices.ContainsFunc(shown[:i], samePolicy) {
			continue
		}
		if len(limits) > 0 {
			limits, policies = append(limits, ", "...), append(policies, ", "...)
		}
		limits = appendItem(limits, a.Limit.Policy, "r", a.Decision.Remaining, "t", ratelimit.Seconds(a.Decision.NextIn))
		policies = appendItem(policies, a.Limit.Policy, "q", a.Limit.Requests, "w", ratelimit.Seconds(a.Limit.Window))
	}
	return append(list, Header{"ratelimit", string(limits)}, Header{"ratelimit-policy", string(policies)})
}

// appendItem appends an RFC 9651 string with two integer parameters. It leaves out the second one if it is 0, which
// means "now". Policy names need no quotes.
func appendItem(b []byte, name, p1 string, v1 int64, p2 string, v2 int64) []byte {
	b = append(append(append(b, '"'), name...), `";`...)
	b = strconv.AppendInt(append(append(b, p1...), '='), v1, 10)
	if v2 == 0 {
		return b
	}
	return strconv.AppendInt(append(append(append(b, ';'), p2...), '='), v2, 10)
}

// AppendTriple appends the three headers of Triple for a limit. reset is in seconds.
func (h Headers) AppendTriple(list []Header, a *ratelimit.Applied, reset int64) []Header {
	return append(list,
		Header{h.LimitName, strconv.FormatInt(a.Limit.Requests, 10)},
		Header{h.RemainingName, strconv.FormatInt(a.Decision.Remaining, 10)},
		Header{h.ResetName, strconv.FormatInt(reset, 10)})
}

func appendSpring(list []Header, a *ratelimit.Applied) []Header {
	perSecond := ratelimit.Seconds(a.Limit.Requests * 1_000_000 / max(1, a.Limit.Window/1_000_000))
	return append(list,
		Header{"x-ratelimit-remaining", strconv.FormatInt(a.Decision.Remaining, 10)},
		Header{"x-ratelimit-replenish-rate", strconv.FormatInt(perSecond, 10)},
		Header{"x-ratelimit-burst-capacity", strconv.FormatInt(a.Limit.Capacity(), 10)},
		Header{"x-ratelimit-requested-tokens", strconv.FormatUint(a.Cost, 10)})
}

// retryAfter appends Retry-After to a denial that ends: whole seconds, at least 1 and the t of the draft.
func (h Headers) retryAfter(list []Header, res *ratelimit.Result, shown []*ratelimit.Applied) []Header {
	if res.Allowed || res.RetryAfter == bucket.Never {
		return list
	}
	seconds := max(1, ratelimit.Seconds(res.RetryAfter))
	if len(shown) > 0 && slices.Contains(h.Sets, Draft) {
		seconds = max(seconds, ratelimit.Seconds(shown[0].Decision.NextIn))
	}
	return append(list, Header{"retry-after", strconv.FormatInt(seconds, 10)})
}

// ParseSets reads a comma-separated list of sets; "off" alone means none.
func ParseSets(text string) ([]Set, error) {
	var sets []Set
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		switch {
		case slices.Contains(Sets, Set(name)):
			if !slices.Contains(sets, Set(name)) {
				sets = append(sets, Set(name))
			}
		case name == "off" && !strings.Contains(text, ","):
			return nil, nil
		default:
			return nil, fmt.Errorf("%q is not one of draft, triple, x, spring, off", name)
		}
	}
	if slices.Contains(sets, X) && slices.Contains(sets, Spring) {
		return nil, fmt.Errorf("x and spring both send X-RateLimit-Remaining: choose one of them")
	}
	return sets, nil
}
