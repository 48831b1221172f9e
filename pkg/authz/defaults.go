package authz

import (
	"cmp"
	"slices"
	"strings"
)

// WithDefaults returns the policy with all defaults, and with headers and hosts in lower case. The identity headers
// (see IdentityHeaders.Names), the actions of limits and the settings of credentials stay as they are.
func (p *Policy) WithDefaults() *Policy {
	d := *p
	absent, invalid := cmp.Or(p.Absent, new(Refusal)), cmp.Or(p.Invalid, new(Refusal))
	d.Absent = &Refusal{Status: cmp.Or(absent.Status, 401), Pass: absent.Pass}
	d.Invalid = &Refusal{
		Status: cmp.Or(invalid.Status, 403), TokenStatus: cmp.Or(invalid.TokenStatus, invalid.Status, 401),
	}
	d.Access = slices.Clone(p.Access)
	for i := range d.Access {
		a := &d.Access[i]
		a.Require, a.Hosts = cmp.Or(a.Require, NeedCredential), slices.Clone(a.Hosts)
		for k, host := range a.Hosts {
			a.Hosts[k], _ = hostPattern(host)
		}
	}
	d.KeepHeaders = nil
	for _, name := range p.KeepHeaders {
		if name = strings.ToLower(name); !slices.Contains(d.KeepHeaders, name) {
			d.KeepHeaders = append(d.KeepHeaders, name)
		}
	}
	return &d
}
