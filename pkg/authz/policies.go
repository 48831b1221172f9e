package authz

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Policies are policies by domain, compiled: an Authorizer decides by them. They do not change.
type Policies struct {
	byDomain map[string]*policy // nil for a policy with mistakes
	issuers  []*Issuer
	rules    *ratelimit.Rules
}

// NewPolicies compiles policies, which must not change afterwards. A policy with mistakes, apart from warnings, refuses every
// request. rules are those of the same source: they limit the descriptors that the policies make. headers are the rate limit
// headers for clients, which are removed from requests.
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
			if issuer := compiled.credentials[i].issuer; issuer != nil {
				all.issuers = append(all.issuers, issuer)
			}
		}
	}
	return all
}

// Issuers returns whose tokens the policies take. A Tokens is asked about them.
func (p *Policies) Issuers() []*Issuer { return p.issuers }

// policy is a compiled Policy.
type policy struct {
	credentials []credential
	// anonymous lets a request without a credential pass.
	anonymous, preflight, unsafePaths bool
	// The statuses of a request without a credential, with one that is not valid, and with a token that is not valid.
	absent, invalid, invalidToken int
	access                        []accessRule
	limits, refused               []descriptorMaker
	headers                       [4]string // IdentityHeaders.Names
	// remove are the headers that are removed from every request, in their order. ours are those and the ones that are set or kept:
	// a header that only looks like one of them is removed, too. Names that look alike are folded to the same one.
	remove []string
	ours   map[string]bool
	folded map[string]bool
	// removeQuery and cookies are the query parameters and cookies that hold credentials.
	removeQuery, cookies []string
	// trustsHops says that an action takes an address from x-forwarded-for, needsPeer that one takes that of the peer.
	trustsHops, needsPeer bool
	challenges            map[reply.Reason]string
}

// credential is a compiled Credential: an API key, a token (issuer) or a certificate (principals).
type credential struct {
	place      place
	issuer     *Issuer
	principals []string
}

// place is a compiled Source: the name of a header or of another place, as requests have it.
type place struct {
	in   placeKind
	name string
}

type placeKind uint8

const (
	nowhere placeKind = iota
	inHeader
	inScheme
	inQuery
	inCookie
)

// Issuer is whose tokens a policy takes, and how they are checked: a JWT with its defaults.
type Issuer struct {
	Name                               string // iss
	Audiences, Algorithms              []string
	Leeway                             time.Duration
	JWKSFile, JWKSURL                  string // one of them
	OwnerClaim, PlanClaim, ScopesClaim string // PlanClaim can be ""
}

// compile works out all that requests are decided by. The policy has no mistakes.
func (p *Policy) compile(domain string, headers reply.Headers) *policy {
	p = p.WithDefaults()
	c := &policy{
		anonymous: p.passes(), preflight: bool(p.Preflight), unsafePaths: bool(p.UnsafePaths),
		absent: p.Absent.Status, invalid: p.Invalid.Status, invalidToken: p.Invalid.TokenStatus,
		limits: compileLimits(p.Limits), refused: compileLimits(p.Refused),
		headers: p.Headers.Names(),
	}
	for i := range p.Credentials {
		c.credentials = append(c.credentials, p.Credentials[i].compile())
	}
	for i := range p.Access {
		c.access = append(c.access, p.Access[i].compile())
	}
	for _, limit := range slices.Concat(p.Limits, p.Refused) {
		for _, action := range limit.Actions {
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

// compileNames works out which headers, query parameters and cookies are removed from requests.
func (p *policy) compileNames(keep []string, headers reply.Headers) {
	p.remove = slices.Concat(notTheClients[:], headers.Names())
	for _, name := range overrideHeaders {
		if !slices.Contains(keep, name) {
			p.remove = append(p.remove, name)
		}
	}
	for i := range p.credentials {
		switch at := p.credentials[i].place; at.in {
		case inHeader:
			p.remove = append(p.remove, at.name)
		case inQuery:
			p.removeQuery = append(p.removeQuery, at.name)
		case inCookie:
			p.cookies = append(p.cookies, at.name)
		}
	}
	slices.Sort(p.remove)
	p.remove = slices.Compact(p.remove)
	p.ours, p.folded = map[string]bool{}, map[string]bool{}
	for _, name := range slices.Concat(p.remove, keep, p.headers[:]) {
		p.ours[name] = true
		p.folded[string(appendFolded(nil, name))] = true
	}
}

// compile returns what the credential is in requests. It is one of a policy with defaults.
func (c *Credential) compile() credential {
	compiled := credential{place: c.source().compile()}
	switch {
	case c.JWT != nil:
		compiled.issuer = &Issuer{
			Name: text(c.JWT.Issuer), Audiences: c.JWT.Audiences, Algorithms: c.JWT.Algorithms, Leeway: c.JWT.Leeway,
			JWKSFile: text(c.JWT.JWKSFile), JWKSURL: text(c.JWT.JWKSURL),
			OwnerClaim: text(c.JWT.OwnerClaim), PlanClaim: c.JWT.PlanClaim, ScopesClaim: c.JWT.ScopesClaim,
		}
	case c.MTLS != nil:
		compiled.principals = c.MTLS.Principals
	}
	return compiled
}

func (s Source) compile() place {
	for in, name := range [...]*string{inHeader: s.Header, inScheme: s.Scheme, inQuery: s.Query, inCookie: s.Cookie} {
		if name != nil {
			return place{placeKind(in), *name}
		}
	}
	return place{}
}

// header is the name of the header that holds the credential; "" if none does.
func (at place) header() string {
	switch at.in {
	case inHeader:
		return at.name
	case inScheme:
		return "authorization"
	case inCookie:
		return "cookie"
	}
	return ""
}

// compileChallenges writes what WWW-Authenticate says about each reason for which a credential is refused (RFC 9110, 11.6.1): which
// credentials are taken, and after a refused token the error of RFC 6750, 3.1. It describes only what needs a valid signature to find
// out, so that it tells nothing to those who make up tokens.
func (p *policy) compileChallenges(domain string) {
	const invalid = `, error="invalid_token"`
	p.challenges = map[reply.Reason]string{}
	for reason, problem := range map[reply.Reason]string{
		reply.ReasonAbsent:  "",
		reply.ReasonInvalid: invalid,
		reply.ReasonExpired: invalid + `, error_description="The token has expired"`,
		reply.ReasonNotYet:  invalid + `, error_description="The token is not valid yet"`,
	} {
		var list []string
		for i := range p.credentials {
			text := p.credentials[i].challenge(domain, problem)
			if text != "" && !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
		p.challenges[reason] = strings.Join(list, ", ")
	}
}

// challenge is what WWW-Authenticate says of one credential. problem is what was wrong with a token.
func (c *credential) challenge(domain, problem string) string {
	switch {
	case c.issuer != nil:
		return fmt.Sprintf("Bearer realm=%q", realm(domain)) + problem
	case c.principals != nil:
		return ""
	case c.place.in == inScheme:
		return fmt.Sprintf("%s realm=%q", c.place.name, realm(domain))
	}
	return fmt.Sprintf("ApiKey realm=%q", realm(domain))
}

// realm is the domain as a quoted string can hold it.
func realm(domain string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, domain)
}
