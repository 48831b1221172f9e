package rules

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Dump returns the active rules as text, one line for each limit and for each policy. Other keys follow the last comma
// of a line of envoyproxy/ratelimit (/rlconfig on its debug port). API keys and JWTs are hidden: see Mask.
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
	if h := compiled.Hold; h != nil {
		terms := *l.Hold
		l.Hold, terms.Expiry, terms.Most = &terms, ratelimit.ExpiryCharge, h.Most
		if h.Release {
			terms.Expiry = ratelimit.ExpiryRelease
		}
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
	var parts suggest.Parts
	parts.Add(true, "credentials=%s", cmp.Or(strings.Join(credentials, ","), "none"))
	parts.Add(true, "anonymous=%s", p.Anonymous)
	parts.Add(p.Anonymous == authz.Deny && p.Absent.Pass, "absent=pass")
	parts.Add(p.Anonymous == authz.Deny && !p.Absent.Pass, "absent=%d", p.Absent.Status)
	parts.Add(mayBeInvalid, "invalid=%d", p.Invalid.Status)
	parts.Add(p.Invalid.TokenStatus != p.Invalid.Status && tokens, "token_status=%d", p.Invalid.TokenStatus)
	parts.Add(p.Preflight == authz.Allow, "preflight=allow")
	parts.Add(p.UnsafePaths == authz.Allow, "unsafe_paths=allow")
	parts.Add(true, "access=%d", len(p.Access))
	parts.Add(true, "limits=%d", len(p.Limits))
	parts.Add(len(p.Refused) > 0, "refused=%d", len(p.Refused))
	headers := p.Headers.Names()
	for i, name := range headers {
		headers[i] = cmp.Or(name, "none")
	}
	parts.Add(true, "headers=%s", strings.Join(headers[:], ","))
	parts.Add(p.LimitHeaders != nil, "limit_headers=%s", ratelimit.Headers(p.LimitHeaders))
	parts.Add(len(p.KeepHeaders) > 0, "keep_headers=%s", strings.Join(p.KeepHeaders, ","))
	parts.Add(p.QuotaPath != "", "quota_path=%s", p.QuotaPath)
	parts.Add(p.Position != "", "at=%s", p.Position)
	return domain + " authz: " + strings.Join(parts, " ")
}

// Mask hides API keys and JWTs, which may be in a rule file by mistake. It keeps the length of a text. Keys of
// descriptors such as `area_restrictions`, and other texts with such a beginning, stay readable.
func Mask(text string) string {
	if !strings.Contains(text, "ea_") && !strings.Contains(text, "eyJ") {
		return text
	}
	const begins = `(?:\b|_)` // messages join the key and the value of a descriptor with `_`
	tokens := regexp.MustCompile(begins + `eyJ[0-9A-Za-z_-]{12,}(?:\.[0-9A-Za-z_-]*)*`)
	text = tokens.ReplaceAllStringFunc(text, func(token string) string {
		shown := strings.Index(token, "eyJ") + len("eyJ")
		return token[:shown] + strings.Repeat("*", len(token)-shown)
	})
	keys := regexp.MustCompile(begins + `ea_[0-9A-Za-z]{8}_[0-9A-Za-z]{12,}`)
	return keys.ReplaceAllStringFunc(text, apikey.Mask)
}
