package authz

import (
	"cmp"
	"slices"
	"strings"
)

// WithDefaults returns the policy with every default, and with names in the form in which they are compared: headers
// and hosts in lower case. Headers (see IdentityHeaders.Names) and the actions of limits stay as they are. The policy
// must have no mistakes.
func (p *Policy) WithDefaults() *Policy {
	d := *p
	d.Credentials = make([]Credential, len(p.Credentials))
	for i := range p.Credentials {
		d.Credentials[i] = p.Credentials[i].withDefaults()
	}
	absent, invalid := cmp.Or(p.Absent, new(Refusal)), cmp.Or(p.Invalid, new(Refusal))
	d.Absent = &Refusal{Status: cmp.Or(absent.Status, 401), Pass: absent.Pass}
	d.Invalid = &Refusal{Status: cmp.Or(invalid.Status, 403), TokenStatus: cmp.Or(invalid.TokenStatus, invalid.Status, 401)}
	d.Access = make([]Access, len(p.Access))
	for i := range p.Access {
		d.Access[i] = p.Access[i].withDefaults()
	}
	d.KeepHeaders = nil
	for _, name := range p.KeepHeaders {
		if name = strings.ToLower(name); !slices.Contains(d.KeepHeaders, name) {
			d.KeepHeaders = append(d.KeepHeaders, name)
		}
	}
	return &d
}

func (c *Credential) withDefaults() Credential {
	d := *c
	source := c.source()
	if source.Header != nil {
		source.Header = new(strings.ToLower(*source.Header))
	}
	switch {
	case c.APIKey != nil:
		d.APIKey = &APIKey{source}
	case c.JWT != nil:
		token := *c.JWT
		token.Source = source
		token.OwnerClaim = new(textOr(token.OwnerClaim, "sub"))
		token.ScopesClaim = cmp.Or(token.ScopesClaim, "scope")
		d.JWT = &token
	}
	return d
}

func (a Access) withDefaults() Access {
	a.Hosts = slices.Clone(a.Hosts)
	for i, host := range a.Hosts {
		a.Hosts[i], _ = hostPattern(host)
	}
	if a.Require == Unset {
		a.Require = NeedCredential
	}
	return a
}
