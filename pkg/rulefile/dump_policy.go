package rulefile

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

// dumpPolicy is a policy in one line: what differs from the defaults, and how many rules there are.
func dumpPolicy(domain string, p *authz.Policy) string {
	var credentials []string
	for _, c := range p.Credentials {
		credentials = append(credentials, credentialText(c))
	}
	var parts []string
	show := func(shown bool, format string, values ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	show(true, "credentials=%s", orNone(strings.Join(credentials, ",")))
	show(true, "anonymous=%s", allowText(p.Anonymous))
	show(!p.Anonymous, "absent=%s", refusalText(p.Absent))
	show(len(p.Credentials) > 0, "invalid=%s", refusalText(p.Invalid))
	show(p.Preflight, "preflight=allow")
	show(p.UnsafePaths, "unsafe_paths=allow")
	show(true, "access=%d", len(p.Access))
	show(true, "limits=%d", len(p.Limits))
	show(len(p.Refused) > 0, "refused=%d", len(p.Refused))
	h := p.Headers
	show(true, "headers=%s,%s,%s,%s", orNone(h.Owner), orNone(h.Plan), orNone(h.Method), orNone(h.KeyID))
	show(len(p.KeepHeaders) > 0, "keep_headers=%s", strings.Join(p.KeepHeaders, ","))
	show(p.Position != "", "at=%s", p.Position)
	return domain + " authz: " + strings.Join(parts, " ")
}

// credentialText is a credential and where it is looked for: api_key(header x-api-key), jwt(https://idp.example, scheme Bearer).
func credentialText(c authz.Credential) string {
	switch {
	case c.APIKey != nil:
		return "api_key(" + sourceText(c.APIKey.Source) + ")"
	case c.JWT != nil:
		return "jwt(" + c.JWT.Issuer + ", " + sourceText(c.JWT.Source) + ")"
	case c.MTLS != nil:
		return "mtls(" + strings.Join(c.MTLS.Principals, ", ") + ")"
	}
	return "none"
}

func sourceText(s authz.Source) string {
	switch {
	case s.Header != "":
		return "header " + s.Header
	case s.Scheme != "":
		return "scheme " + s.Scheme
	case s.Query != "":
		return "query " + s.Query
	}
	return "cookie " + s.Cookie
}

func refusalText(r authz.Refusal) string {
	if r.Pass {
		return "pass"
	}
	return fmt.Sprint(r.Status)
}

func allowText(allowed bool) string {
	if allowed {
		return "allow"
	}
	return "deny"
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
