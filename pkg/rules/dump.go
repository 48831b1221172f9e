package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Dump returns the active rules as text, one line for each limit. The line is that of /rlconfig on the debug port of
// envoyproxy/ratelimit, with all other keys of the rule file after its last comma. A line for each policy follows.
// API keys and JWTs are hidden: see Mask.
func Dump(a *Active) string {
	var b strings.Builder
	for _, r := range a.Limits.All() {
		for i, source := range r.Node.AllLimits() {
			l := &r.Limits[i]
			parts := []string{strictyaml.Dump(effective(source, l)), strictyaml.Dump(beside(*r.Node))}
			if r.Node.Position != "" {
				parts = append(parts, "at="+r.Node.Position)
			}
			parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
			fmt.Fprintf(&b, "%s: unit=%s requests_per_unit=%d, shadow_mode: %t, quota_mode: %t, %s\n",
				oneLine(r.Domain+"."+r.Name), strings.ToUpper(l.Unit.String()), l.Requests, l.Shadow, r.Node.Quota,
				oneLine(strings.Join(parts, ", ")))
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(a.Set.Policies)) {
		b.WriteString(oneLine(dumpPolicy(domain, a.Set.Policies[domain])) + "\n")
	}
	return Mask(b.String())
}

// effective returns a limit with its defaults, without the keys that its line begins with.
func effective(l ratelimit.Limit, compiled *ratelimit.RuleLimit) ratelimit.Limit {
	l.Unit, l.Requests, l.Shadow = 0, nil, false
	l.Algorithm, l.Burst, l.OnStoreError = compiled.Algorithm, compiled.Burst, compiled.OnStoreError
	if zone := compiled.Calendar.Zone(); zone != "" {
		l.Calendar = &zone
	}
	l.MaxDelay = time.Duration(compiled.MaxDelay) * time.Microsecond
	if l.Multiplier == 1 {
		l.Multiplier = 0
	}
	return l
}

// beside returns the keys of a node that the lines of its limits show at their ends.
func beside(n ratelimit.Node) ratelimit.Node {
	n.Key, n.Value, n.RateLimit, n.Limits, n.Descriptors = "", "", nil, nil, nil // parts of the line
	n.Shadow, n.Quota = false, false
	return n
}

// oneLine escapes line breaks, so that a key or a value cannot look like another limit.
func oneLine(text string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(text)
}

// dumpPolicy returns a policy in one line: what differs from the defaults, and the number of rules.
func dumpPolicy(domain string, p *authz.Policy) string {
	mayBeInvalid := len(p.Credentials) > 0 || p.Invalid != nil
	p = p.WithDefaults()
	var credentials []string
	tokens := false
	for _, c := range p.Credentials {
		traits := c.Kind().Traits()
		credentials = append(credentials, traits.Name+"("+c.Kind().String()+")")
		tokens = tokens || traits.Token
	}
	var parts []string
	show := func(shown bool, format string, values ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	show(true, "credentials=%s", cmp.Or(strings.Join(credentials, ","), "none"))
	show(true, "anonymous=%s", p.Anonymous)
	show(p.Anonymous == authz.Deny && p.Absent.Pass, "absent=pass")
	show(p.Anonymous == authz.Deny && !p.Absent.Pass, "absent=%d", p.Absent.Status)
	show(mayBeInvalid, "invalid=%d", p.Invalid.Status)
	show(p.Invalid.TokenStatus != p.Invalid.Status && tokens, "token_status=%d", p.Invalid.TokenStatus)
	show(p.Preflight == authz.Allow, "preflight=allow")
	show(p.UnsafePaths == authz.Allow, "unsafe_paths=allow")
	show(true, "access=%d", len(p.Access))
	show(true, "limits=%d", len(p.Limits))
	show(len(p.Refused) > 0, "refused=%d", len(p.Refused))
	headers := p.Headers.Names()
	for i, name := range headers {
		headers[i] = cmp.Or(name, "none")
	}
	show(true, "headers=%s", strings.Join(headers[:], ","))
	show(p.LimitHeaders != nil, "limit_headers=%s", ratelimit.Headers(p.LimitHeaders))
	show(len(p.KeepHeaders) > 0, "keep_headers=%s", strings.Join(p.KeepHeaders, ","))
	show(p.QuotaPath != "", "quota_path=%s", p.QuotaPath)
	show(p.Position != "", "at=%s", p.Position)
	return domain + " authz: " + strings.Join(parts, " ")
}
