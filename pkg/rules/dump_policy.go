package rules

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

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
	show(len(p.KeepHeaders) > 0, "keep_headers=%s", strings.Join(p.KeepHeaders, ","))
	show(p.Position != "", "at=%s", p.Position)
	return domain + " authz: " + strings.Join(parts, " ")
}
