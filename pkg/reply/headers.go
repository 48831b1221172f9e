package reply

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const retryAfterName = "retry-after"

// DraftVersion is the version of draft-ietf-httpapi-ratelimit-headers that RateLimit and RateLimit-Policy follow.
const DraftVersion = 11

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

// Add adds the headers for a result to a list. It leaves out rules in shadow mode. Names are in lower case, except for
// those that Headers has.
func (h Headers) Add(l *List, res *ratelimit.Result) {
	if len(h.Sets) == 0 {
		return
	}
	var few [usualLimits]*ratelimit.Applied
	shown := appendShown(few[:0], res)
	for _, set := range h.Sets {
		switch {
		case len(shown) == 0:
		case set == Draft:
			l.addDraft(shown)
		case set == Triple:
			h.AddTriple(l, shown[0], shown[0].Wait())
		case set == X:
			x := Headers{
				LimitName: "x-ratelimit-limit", RemainingName: "x-ratelimit-remaining", ResetName: "x-ratelimit-reset",
			}
			x.AddTriple(l, shown[0], shown[0].Wait())
		case set == Spring:
			l.addSpring(shown[0])
		}
	}
	h.addRetryAfter(l, res, shown)
}

// AddTriple adds the three headers of Triple for a limit. reset is in seconds.
func (h Headers) AddTriple(l *List, a *ratelimit.Applied, reset int64) {
	l.addNumber(h.LimitName, a.Limit.Requests)
	l.addNumber(h.RemainingName, a.Decision.Remaining)
	l.addNumber(h.ResetName, reset)
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
