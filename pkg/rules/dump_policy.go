package rules

import (
	"fmt"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

// dumpPolicy is a policy in one line: what differs from the defaults, and how many rules there are.
func dumpPolicy(domain string, p *authz.Policy) string {
	p = p.WithDefaults()
	var credentials []string
	tokens := false
	for _, c := range p.Credentials {
		credentials = append(credentials, credentialText(c))
		tokens = tokens || c.JWT != nil
	}
	var parts []string
	show := func(shown bool, format string, values ...any) {
		if shown {
			parts = append(parts, fmt.Sprintf(format, values...))
		}
	}
	show(true, "credentials=%s", orNone(strings.Join(credentials, ",")))
	show(true, "anonymous=%s", p.Anonymous)
	show(p.Anonymous == authz.Deny, "absent=%s", absentText(p.Absent))
	show(len(p.Credentials) > 0, "invalid=%d", p.Invalid.Status)
	show(p.Invalid.TokenStatus != p.Invalid.Status && tokens, "token_status=%d", p.Invalid.TokenStatus)
	show(p.Preflight == authz.Allow, "preflight=allow")
	show(p.UnsafePaths == authz.Allow, "unsafe_paths=allow")
	show(true, "access=%d", len(p.Access))
	show(true, "limits=%d", len(p.Limits))
	show(len(p.Refused) > 0, "refused=%d", len(p.Refused))
	h := p.Headers.Names()
	show(true, "headers=%s,%s,%s,%s", orNone(h[0]), orNone(h[1]), orNone(h[2]), orNone(h[3]))
	show(len(p.KeepHeaders) > 0, "keep_headers=%s", strings.Join(p.KeepHeaders, ","))
	show(p.Position != "", "at=%s", p.Position)
	return domain + " authz: " + strings.Join(parts, " ")
}

// credentialText is a credential and where it is looked for: api_key(header x-api-key), jwt(https://idp.example,
// scheme Bearer).
func credentialText(c authz.Credential) string {
	switch {
	case c.APIKey != nil:
		return "api_key(" + sourceText(c.APIKey.Source) + ")"
	case c.JWT != nil:
		return "jwt(" + *c.JWT.Issuer + ", " + sourceText(c.JWT.Source) + ")"
	case c.MTLS != nil:
		return "mtls(" + strings.Join(c.MTLS.Principals, ", ") + ")"
	}
	return "none"
}

func sourceText(s authz.Source) string {
	for _, at := range []struct {
		key  string
		name *string
	}{{"header", s.Header}, {"scheme", s.Scheme}, {"query", s.Query}, {"cookie", s.Cookie}} {
		if at.name != nil {
			return at.key + " " + *at.name
		}
	}
	return ""
}

func absentText(r *authz.Refusal) string {
	if r.Pass {
		return "pass"
	}
	return fmt.Sprint(r.Status)
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}
