package authz

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/httpheader"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
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
		if slices.ContainsFunc(p.Check(), func(m ratelimit.Mistake) bool { return !m.Warning }) {
			all.byDomain[domain] = nil
			continue
		}
		compiled := p.compile(domain, headers)
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
	// strip are the headers that every request loses, beside those that look like one that is removed, set or kept.
	strip      *httpheader.Names
	lookalikes lookalikes
	// removeQuery and cookies are the query parameters and cookies that hold credentials.
	removeQuery, cookies []string
	// trustsHops is true if an action reads x-forwarded-for, needsPeer for the address of the peer.
	trustsHops, needsPeer, readsMetadata bool
	challenges                           map[reply.Reason]string
}

// accepted is a compiled Credential.
type accepted struct {
	kind    credential.Kind
	traits  credential.Traits
	place   credential.Place
	checker credential.Checker // nil unless the kind is one
}

// compile compiles a policy without mistakes.
func (p *Policy) compile(domain string, headers reply.Headers) *policy {
	p = p.WithDefaults()
	c := &policy{
		domain:    domain,
		anonymous: p.passes(), preflight: bool(p.Preflight), unsafePaths: bool(p.UnsafePaths),
		absent: p.Absent.Status, invalid: p.Invalid.Status, invalidToken: p.Invalid.TokenStatus,
		limits: compileLimits(p.Limits), refused: compileLimits(p.Refused), quotaPath: p.QuotaPath,
		headers: p.Headers.Names(), limitHeaders: ratelimit.Headers(p.LimitHeaders).Compile(),
	}
	for i := range p.Credentials {
		kind := p.Credentials[i].Kind()
		checker, _ := kind.(credential.Checker)
		c.credentials = append(c.credentials,
			accepted{kind: kind, traits: kind.Traits(), place: kind.Place(), checker: checker})
	}
	for i := range p.Access {
		c.access = append(c.access, p.Access[i].compile())
		c.access[i].next = i + 1
		if e := p.Access[i].Enforce; e != nil {
			c.access[i].by = p.entryMakers(e.By)
		}
	}
	for _, limit := range slices.Concat(p.Limits, p.Refused) {
		c.readsMetadata = c.readsMetadata || limit.Cost.Metadata != nil
		for _, action := range limit.Actions {
			c.readsMetadata = c.readsMetadata || action.Metadata != nil
			if action.RemoteAddress != nil {
				c.trustsHops = c.trustsHops || action.RemoteAddress.TrustedHops > 0
				c.needsPeer = c.needsPeer || action.RemoteAddress.TrustedHops == 0
			}
		}
	}
	c.compileNames(p.KeepHeaders, headers)
	c.compileChallenges(domain)
	return c
}

// entryMakers returns the actions of the limits that make an entry with a key, each with several values.
func (p *Policy) entryMakers(key string) (makers []entryMaker) {
	for _, limit := range slices.Concat(p.Limits, p.Refused) {
		for i := range limit.Actions {
			if m := limit.Actions[i].compile(); m.fixed == "" && m.key != "" && (key == "" || m.key == key) {
				makers = append(makers, m)
			}
		}
	}
	return makers
}

// compileNames sets the headers, query parameters and cookies that are removed from requests.
func (p *policy) compileNames(keep []string, headers reply.Headers) {
	remove := slices.Concat(envoyOnly[:], headers.Names())
	for _, name := range secondHeaders {
		if !slices.Contains(keep, name) && !slices.Contains(p.headers[:], name) {
			remove = append(remove, name)
		}
	}
	for i := range p.credentials {
		switch at := p.credentials[i].place; at.In {
		case credential.Header:
			remove = append(remove, at.Name)
		case credential.Query:
			p.removeQuery = append(p.removeQuery, at.Name)
		case credential.Cookie:
			p.cookies = append(p.cookies, at.Name)
		}
	}
	p.strip = httpheader.NewNames(remove)
	p.lookalikes = newLookalikes(slices.Concat(remove, keep, p.headers[:]))
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
