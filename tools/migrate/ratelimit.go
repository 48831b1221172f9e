package migrate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/tools/compatibility"
)

// RatelimitOptions are the settings on which the changes depend.
type RatelimitOptions struct {
	// Strict is COMPATIBILITY=strict.
	Strict bool
	// DefaultAlgorithm is the algorithm of limits that name none.
	DefaultAlgorithm bucket.Algorithm
	// CalendarMonths is USE_CALENDAR_MONTH_RATE_LIMIT.
	CalendarMonths bool
	// Set reports whether a variable is set.
	Set func(variable string) bool
}

// Change is something that differs from envoyproxy/ratelimit, with the same rules and settings.
type Change struct {
	// Row is the row of docs/reference/compatibility.md.
	Row compatibility.Row `json:"row"`
	// Here is what it is from now on.
	Here string `json:"here"`
	// Keep is how to keep what was, "" if that is not possible.
	Keep string `json:"keep,omitempty"`
	// Places are the positions in the rule files that are affected, empty for all.
	Places []string `json:"places,omitempty"`
}

// Ratelimit lists what changes for rules of envoyproxy/ratelimit.
func Ratelimit(domains []ratelimit.Domain, o RatelimitOptions) (changes []Change) {
	const strict = "COMPATIBILITY=strict"
	if !o.Strict {
		var limits, wildcards []string
		calendars := map[string]bool{} // they are fixed windows with any DEFAULT_ALGORITHM
		for _, d := range domains {
			limits, wildcards = affected(d.Descriptors, limits, wildcards)
			o.addCalendars(d.Descriptors, calendars)
		}
		other := slices.DeleteFunc(slices.Clone(limits), func(at string) bool { return calendars[at] })
		if len(other) > 0 && o.DefaultAlgorithm != bucket.FixedWindow {
			changes = append(changes, Change{compatibility.Algorithm, fmt.Sprintf("%s: %s in place of fixed_window",
				suggest.Counted(len(other), "limit"), o.DefaultAlgorithm),
				"DEFAULT_ALGORITHM=fixed_window", other})
		}
		if len(limits) > 0 {
			changes = append(changes,
				Change{compatibility.Denied, "it charges nothing, unless the descriptor states its hits_addend",
					"`count_denied: true` on a limit, or " + strict, nil},
				Change{compatibility.Peek, "it is denied", strict, nil})
		}
		if len(wildcards) > 0 {
			changes = append(changes, Change{compatibility.Wildcards,
				"the most specific one is chosen, not the first in the file", strict + ", or the order of the file", wildcards})
		}
		changes = append(changes, Change{compatibility.Undecided, "each replica continues from the counts that it last saw",
			"STORE_ERROR_POLICY=allow or deny, or " + strict, nil})
		if len(limits) > 0 {
			changes = append(changes, Change{compatibility.Remaining, "it is exact", strict, nil},
				Change{compatibility.Reset, "the time until the same request would pass", strict, nil})
			if !o.Set("RESPONSE_HEADERS") || !o.Set("RESPONSE_BODY") {
				changes = append(changes, Change{compatibility.Headers, "clients get the headers ratelimit and ratelimit-policy; " +
					"a denial has retry-after and a body in JSON", "RESPONSE_HEADERS=off and RESPONSE_BODY=off, or " + strict, nil})
			}
		}
	}
	if !o.Strict && !o.Set("REDIS_TIMEOUT") {
		changes = append(changes, Change{compatibility.RedisDelay, "at most 50 ms for every decision",
			strict + ", or a larger REDIS_TIMEOUT", nil})
	}
	if !o.Set("DEBUG_HOST") {
		changes = append(changes, Change{compatibility.DebugHost, "127.0.0.1: other machines cannot reach the debug port",
			"DEBUG_HOST=0.0.0.0, behind a network policy", nil})
	}
	return changes
}

// affected adds the positions of limits without an algorithm, and of wildcards that are moreSpecific than earlier ones.
func affected(nodes []ratelimit.Node, limits, wildcards []string) (_, _ []string) {
	var earlier []*ratelimit.Node // wildcards of this level
	for i := range nodes {
		n := &nodes[i]
		for _, l := range n.AllLimits() {
			if l.Algorithm == 0 && !l.Unlimited {
				limits = append(limits, cmp.Or(l.Position, n.Position))
			}
		}
		if slices.ContainsFunc(earlier, func(e *ratelimit.Node) bool { return moreSpecific(n, e) }) {
			wildcards = append(wildcards, n.Position)
		}
		if strings.Contains(n.Key+n.Value, "*") {
			earlier = append(earlier, n)
		}
		limits, wildcards = affected(n.Descriptors, limits, wildcards)
	}
	return limits, wildcards
}

// addCalendars adds the positions of limits whose windows are those of a calendar.
func (o *RatelimitOptions) addCalendars(nodes []ratelimit.Node, at map[string]bool) {
	for _, n := range nodes {
		for _, l := range n.AllLimits() {
			if l.Calendar != nil || o.CalendarMonths && l.Unit == descriptors.Month {
				at[cmp.Or(l.Position, n.Position)] = true
			}
		}
		o.addCalendars(n.Descriptors, at)
	}
}

// moreSpecific reports whether a wildcard has more literal characters than another one, and both may match one entry.
func moreSpecific(n, earlier *ratelimit.Node) bool {
	literals := func(n *ratelimit.Node) int { return len(strings.ReplaceAll(n.Key+n.Value, "*", "")) }
	return strings.Contains(n.Key+n.Value, "*") && literals(n) > literals(earlier) &&
		overlap(n.Key, earlier.Key) && overlap(n.Value, earlier.Value)
}

// overlap reports whether two patterns may match one text, by what is before the first and after the last `*`.
func overlap(a, b string) bool {
	if a == "" || b == "" {
		return true // any value
	}
	if !strings.Contains(a, "*") || !strings.Contains(b, "*") {
		return descriptors.Match(a, b) || descriptors.Match(b, a)
	}
	beforeA, beforeB := a[:strings.IndexByte(a, '*')], b[:strings.IndexByte(b, '*')]
	afterA, afterB := a[strings.LastIndexByte(a, '*')+1:], b[strings.LastIndexByte(b, '*')+1:]
	return (strings.HasPrefix(beforeA, beforeB) || strings.HasPrefix(beforeB, beforeA)) &&
		(strings.HasSuffix(afterA, afterB) || strings.HasSuffix(afterB, afterA))
}
