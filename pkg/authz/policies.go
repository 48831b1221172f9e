package authz

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Policies are the compiled policies of all domains, for an Authorizer. They do not change.
type Policies struct {
	byDomain map[string]*policy // nil for a policy with mistakes
	kinds    []credential.Kind
	rules    *ratelimit.Rules
}

// NewPolicies compiles policies, which must not change afterwards. One with mistakes refuses every request. rules, of
// the same source, limit their descriptors. headers are those for clients, which are removed from requests.
func NewPolicies(policies map[string]*Policy, rules *ratelimit.Rules, headers reply.Headers) *Policies {
	all := &Policies{byDomain: make(map[string]*policy, len(policies)), rules: rules}
	for _, domain := range slices.Sorted(maps.Keys(policies)) {
		p := policies[domain]
		mistakes := append(p.Check(), p.checkNetworks(rules.Networks().Lists)...)
		if slices.ContainsFunc(mistakes, func(m ratelimit.Mistake) bool { return !m.Warning }) {
			all.byDomain[domain] = nil
			continue
		}
		compiled := p.compile(domain, headers, rules.Networks())
		all.byDomain[domain] = compiled
		for i := range compiled.credentials {
			all.kinds = append(all.kinds, compiled.credentials[i].kind)
		}
	}
	return all
}

// CredentialsOf returns the credentials of one kind that the policies accept. Its Checker gets one of them.
func CredentialsOf[K credential.Kind](p *Policies) (list []K) {
	for _, kind := range p.kinds {
		if k, ok := kind.(K); ok {
			list = append(list, k)
		}
	}
	return list
}

// KeyOf returns the owner or the id of the API key whose requests have a descriptor of a domain's policy, or "".
func (p *Policies) KeyOf(domain string, entries []descriptors.Entry) (owner, id string) {
	policy := p.byDomain[domain]
	if policy == nil {
		return "", ""
	}
	for i := range policy.limits {
		if !policy.limits[i].makes(entries) {
			continue
		}
		for k, e := range entries {
			switch policy.limits[i].actions[k].field {
			case "owner":
				owner = e.Value
			case "key_id":
				id = e.Value
			}
		}
		if owner != "" || id != "" {
			break
		}
	}
	return owner, id
}

// DescriptorsOf returns the descriptors of an identity by a domain's policy, and how many also depend on the request.
func (p *Policies) DescriptorsOf(domain string, id credential.Identity) (made [][]descriptors.Entry, others int) {
	policy := p.byDomain[domain]
	if policy == nil {
		return nil, 0
	}
	f := facts{decision: &Decision{Identity: id}}
	for i := range policy.limits {
		entries, ofRequest := []descriptors.Entry(nil), false
		for _, a := range policy.limits[i].actions {
			if ofRequest = a.field == "" && !a.always; ofRequest {
				others++
				break
			}
			if value, ok := a.value(&f); ok {
				entries = append(entries, descriptors.Entry{Key: a.key, Value: value})
			}
		}
		if !ofRequest && len(entries) == len(policy.limits[i].actions) {
			made = append(made, entries)
		}
	}
	return made, others
}

// makes reports whether the descriptors of a limit can have these entries.
func (d *descriptorMaker) makes(entries []descriptors.Entry) bool {
	return slices.EqualFunc(d.actions, entries, func(a entryMaker, e descriptors.Entry) bool {
		return a.key == e.Key && (a.fixed == "" || a.fixed == e.Value)
	})
}

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

// policy is a compiled Policy.
type policy struct {
	domain      string
	credentials []accepted
	// anonymous lets a request without a credential pass.
	anonymous, preflight, unsafePaths bool
	// The statuses of a request without a credential, with one that is not valid, and with a token that is not valid.
	absent, invalid, invalidToken int
	access                        []accessRule
	limits, refused               []descriptorMaker
	quotaPath                     string                // "" for none
	headers                       [4]string             // IdentityHeaders.Names
	limitHeaders                  []ratelimit.OwnHeader // Policy.LimitHeaders
	lookalikes                    lookalikes
	removal                       removal // from a request without a credential that is forwarded
	// trustsHops is true if something reads x-forwarded-for, needsPeer for the address of the peer.
	trustsHops, needsPeer, readsMetadata bool
	challenges                           map[reply.Reason]string
}

// accepted is a compiled Credential.
type accepted struct {
	kind    credential.Kind
	traits  credential.Traits
	place   credential.Place
	checker credential.Checker // nil unless the kind is one
	removal *removal           // from a request that this credential allows
}

// removal is what a request loses, beside headers that look like one that is removed, set or kept.
type removal struct {
	strip *httpheader.Names
	// schemes are those of Authorization headers, query and cookies the parameters and cookies, that hold credentials.
	schemes, query, cookies []string
}

// compile compiles a policy without mistakes.
func (p *Policy) compile(domain string, headers reply.Headers, tables *networks.Tables) *policy {
	p = p.WithDefaults()
	c := &policy{
		domain:    domain,
		anonymous: p.passes(), preflight: bool(p.Preflight), unsafePaths: bool(p.UnsafePaths),
		absent: p.Absent.Status, invalid: p.Invalid.Status, invalidToken: p.Invalid.TokenStatus,
		limits: compileLimits(p.Limits, tables), refused: compileLimits(p.Refused, tables), quotaPath: p.QuotaPath,
		headers: p.Headers.Names(), limitHeaders: ratelimit.Headers(p.LimitHeaders).Compile(),
	}
	for i := range p.Credentials {
		kind := p.Credentials[i].Kind()
		checker, _ := kind.(credential.Checker)
		c.credentials = append(c.credentials,
			accepted{kind: kind, traits: kind.Traits(), place: kind.Place(), checker: checker})
	}
	for i := range p.Access {
		rule := p.Access[i].compile()
		rule.next = i + 1
		if len(rule.Networks) > 0 {
			rule.networks = tables.Of(rule.Networks...)
			c.readsAddress(rule.TrustedHops)
		}
		if rule.Enforce != nil {
			rule.by = p.entryMakers(rule.Enforce.By, tables)
		}
		c.access = append(c.access, rule)
	}
	for _, limit := range slices.Concat(p.Limits, p.Refused) {
		c.readsMetadata = c.readsMetadata || limit.Cost.Metadata != nil
		for _, action := range limit.Actions {
			c.readsMetadata = c.readsMetadata || action.Metadata != nil
			if action.RemoteAddress != nil {
				c.readsAddress(action.RemoteAddress.TrustedHops)
			}
		}
	}
	c.compileNames(p.KeepHeaders, headers)
	c.compileChallenges(domain)
	return c
}

// Keys returns the keys of the entries that the actions make, in their order.
func (l *RateLimit) Keys() (keys []string) {
	for i := range l.Actions {
		keys = append(keys, l.Actions[i].compile(new(networks.Tables)).key) // only the keys matter
	}
	return keys
}

// entryMakers returns the actions of the limits that make an entry with a key, each with several values.
func (p *Policy) entryMakers(key string, tables *networks.Tables) (makers []entryMaker) {
	for _, limit := range slices.Concat(p.Limits, p.Refused) {
		for i := range limit.Actions {
			if m := limit.Actions[i].compile(tables); m.fixed == "" && m.key != "" && (key == "" || m.key == key) {
				makers = append(makers, m)
			}
		}
	}
	return makers
}

// readsAddress notes that the policy reads the address of the client.
func (p *policy) readsAddress(trustedHops int) {
	p.trustsHops = p.trustsHops || trustedHops > 0
	p.needsPeer = p.needsPeer || trustedHops == 0
}

// compileNames sets what is removed from requests.
func (p *policy) compileNames(keep []string, headers reply.Headers) {
	names := slices.Concat(envoyOnly[:], headers.Names())
	for _, name := range secondHeaders {
		if !slices.Contains(keep, name) && !slices.Contains(p.headers[:], name) {
			names = append(names, name)
		}
	}
	p.removal = p.removes(names, credential.Place{})
	p.lookalikes = newLookalikes(slices.Concat(p.removal.strip.List(), keep, p.headers[:]))
	for i := range p.credentials {
		c := &p.credentials[i]
		c.removal = &p.removal
		if f, ok := c.kind.(credential.Forwarder); ok && f.Forwards() {
			c.removal = new(p.removes(names, c.place))
		}
	}
}

// removes returns the removal of headers, and of all credentials but those at a place.
func (p *policy) removes(names []string, but credential.Place) (r removal) {
	names = slices.Clone(names)
	for i := range p.credentials {
		switch at := p.credentials[i].place; {
		case at == but:
		case at.In == credential.Header:
			names = append(names, at.Name)
		case at.In == credential.Scheme && but.Header() != at.Header(): // a request has only one that is valid
			r.schemes = append(r.schemes, at.Name)
		case at.In == credential.Query:
			r.query = append(r.query, at.Name)
		case at.In == credential.Cookie:
			r.cookies = append(r.cookies, at.Name)
		}
	}
	r.strip = httpheader.NewNames(slices.DeleteFunc(names, func(name string) bool { return name == but.Header() }))
	return r
}

// compileChallenges makes the WWW-Authenticate of each reason for a refusal: the accepted credentials.
func (p *policy) compileChallenges(domain string) {
	p.challenges = map[reply.Reason]string{}
	for _, reason := range reply.Challenged() {
		var list []string
		for i := range p.credentials {
			c := &p.credentials[i]
			scheme := c.traits.Scheme
			if scheme != "" && c.place.In == credential.Scheme && !c.traits.Token {
				scheme = c.place.Name
			}
			text := reason.Challenge(scheme, domain, c.traits.Token)
			if text != "" && !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
		p.challenges[reason] = strings.Join(list, ", ")
	}
}
