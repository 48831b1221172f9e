package reply

import (
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const retryAfterName = "retry-after"

// Set is a family of rate limit headers.
type Set string

// The sets (RESPONSE_HEADERS).
const (
	// Draft sends RateLimit and RateLimit-Policy of version 11 of draft-ietf-httpapi-ratelimit-headers.
	Draft Set = "draft"
	// Triple sends RateLimit-Limit, -Remaining and -Reset, under the names of LIMIT_LIMIT_HEADER and its like.
	Triple Set = "triple"
	// X sends X-RateLimit-Limit, -Remaining and -Reset, with the seconds until the reset.
	X Set = "x"
	// Spring sends the headers of Spring Cloud Gateway.
	Spring Set = "spring"
)

// Headers selects the headers to send. The zero value sends none.
type Headers struct {
	// Sets are sent together. With any of them, a denial also has Retry-After.
	Sets []Set
	// LimitName, RemainingName and ResetName are the names of Triple.
	LimitName, RemainingName, ResetName string
	// Renamed has other names of the headers of Draft, X and Spring, by their usual names. All are in lower case.
	Renamed map[string]string
}

// usualNames are the names of the headers of the sets, except for Triple.
var usualNames = map[Set][]string{
	Draft: {"ratelimit", "ratelimit-policy"},
	X:     {"x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"},
	Spring: {"x-ratelimit-remaining", "x-ratelimit-replenish-rate", "x-ratelimit-burst-capacity",
		"x-ratelimit-requested-tokens"},
}

// Renamable returns the names that Renamed can replace, sorted.
func Renamable() []string {
	all := slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(usualNames))...)))
	return slices.Compact(all)
}

// name returns the name of a header of Draft, X or Spring.
func (h *Headers) name(usual string) string {
	if len(h.Renamed) == 0 { // almost always
		return usual
	}
	if renamed, ok := h.Renamed[usual]; ok {
		return renamed
	}
	return usual
}

// Names returns the names of the headers that can be sent, in lower case, without Retry-After.
func (h Headers) Names() []string {
	var names []string
	for _, set := range h.Sets {
		if set == Triple {
			names = append(names, strings.ToLower(h.LimitName), strings.ToLower(h.RemainingName), strings.ToLower(h.ResetName))
		}
		for _, usual := range usualNames[set] {
			names = append(names, h.name(usual))
		}
	}
	return names
}

// Sent returns the names of all headers that an answer can have, in lower case.
func (h Headers) Sent() []string {
	if len(h.Sets) == 0 {
		return nil
	}
	return append(h.Names(), retryAfterName)
}

// Add adds the headers for a result to a list, then own headers: those of its limits, and those of a policy for the
// tightest limit. It leaves out rules in shadow mode and hidden limits. Only names of Triple can have upper case.
func (h *Headers) Add(l *List, res *ratelimit.Result, policy []ratelimit.OwnHeader) {
	var few [usualLimits]*ratelimit.Applied
	shown := appendShown(few[:0], res)
	if len(h.Sets) > 0 {
		h.addSets(l, res, shown)
	}
	for _, a := range shown {
		if len(a.Limit.Headers) > 0 {
			l.addOwn(a.Limit.Headers, res, a)
		}
	}
	if len(shown) > 0 && len(policy) > 0 {
		l.addOwn(policy, res, shown[0])
	}
}

// addSets adds the headers of all sets, and Retry-After.
func (h *Headers) addSets(l *List, res *ratelimit.Result, shown []*ratelimit.Applied) {
	for _, set := range h.Sets {
		switch {
		case len(shown) == 0:
		case set == Draft:
			l.addDraft(h, shown)
		case set == Triple:
			h.AddTriple(l, shown[0], shown[0].Wait())
		case set == X:
			x := Headers{
				LimitName: h.name("x-ratelimit-limit"), RemainingName: h.name("x-ratelimit-remaining"),
				ResetName: h.name("x-ratelimit-reset"),
			}
			x.AddTriple(l, shown[0], shown[0].Wait())
		case set == Spring:
			l.addSpring(h, res, shown[0])
		}
	}
	h.addRetryAfter(l, res, shown)
}

// AddTriple adds the three headers of Triple for a limit. reset is in seconds.
func (h *Headers) AddTriple(l *List, a *ratelimit.Applied, reset int64) {
	l.addNumber(h.LimitName, a.Limit.Requests)
	l.addNumber(h.RemainingName, a.Decision.Remaining)
	l.addNumber(h.ResetName, reset)
}

// ParseSets reads a comma-separated list of sets; "off" alone means none. ok is false for other words, and for X with
// Spring: both send X-RateLimit-Remaining.
func ParseSets(text string) (sets []Set, ok bool) {
	if strings.TrimSpace(text) == "off" {
		return nil, true
	}
	for name := range strings.SplitSeq(text, ",") {
		set := Set(strings.TrimSpace(name))
		if !slices.Contains([]Set{Draft, Triple, X, Spring}, set) {
			return nil, false
		}
		if !slices.Contains(sets, set) {
			sets = append(sets, set)
		}
	}
	if slices.Contains(sets, X) && slices.Contains(sets, Spring) {
		return nil, false
	}
	return sets, true
}
