package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Dump returns the active rules as text, one line for each limit. The line is that of /rlconfig on the debug port of
// envoyproxy/ratelimit, with the keys of this service after its last comma. A line for each policy follows.
func Dump(a *Active) string {
	var b strings.Builder
	for _, r := range a.Limits.All() {
		for i := range r.Limits {
			l := &r.Limits[i]
			fmt.Fprintf(&b, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t, %s\n",
				oneLine(r.Domain+"."+r.Name), strings.ToUpper(l.Unit.String()), l.Requests, r.Shadow, r.Quota,
				oneLine(strings.Join(extras(r, l), ", ")))
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(a.Set.Policies)) {
		b.WriteString(oneLine(dumpPolicy(domain, a.Set.Policies[domain])) + "\n")
	}
	return b.String()
}

// extras returns the parts of a limit that envoyproxy/ratelimit does not show or does not have.
func extras(r *ratelimit.Rule, l *ratelimit.RuleLimit) []string {
	var parts []string
	show := func(shown bool, format string, value any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	show(r.Unlimited, "unlimited=%t", true)
	show(!r.Unlimited, "algorithm=%s", l.Algorithm)
	show(l.Algorithm.HasBurst(), "burst=%d", l.Burst)
	show(l.UnitMultiplier > 1, "unit_multiplier=%d", l.UnitMultiplier)
	show(l.CountDenied != nil && *l.CountDenied, "count_denied=%t", true)
	show(l.CountDenied != nil && !*l.CountDenied, "count_denied=%t", false)
	show(!r.Unlimited, "on_store_error=%s", l.OnStoreError)
	show(l.HashTag != "", "hash_tag=%s", l.HashTag)
	show(l.OverrideMax > 0, "override_max=%d", l.OverrideMax)
	show(l.MaxDelay > 0, "max_delay=%s", time.Duration(l.MaxDelay)*time.Microsecond)
	show(r.ShareThreshold, "share_threshold=%t", true)
	show(l.Name != "", "name=%s", l.Name)
	show(len(l.Replaces) > 0, "replaces=%s", strings.Join(l.Replaces, "+"))
	show(r.Position != "", "at=%s", r.Position)
	return parts
}

// oneLine escapes line breaks, so that a key or a value cannot look like another limit.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}
