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

// Policies are the compiled policies of all domains, for an Authorizer. They do not change.
type Policies struct {
	byDomain map[string]*policy // nil for a policy with mistakes
	issuers  []*Issuer
	rules    *ratelimit.Rules
}

// NewPolicies compiles policies, which must not change afterwards. A policy with mistakes that are not warnings refuses
// every request. rules are from the same source; they limit the descriptors of the policies. headers are the rate limit
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

// Issuers returns the issuers whose tokens the policies accept. Tokens.Check gets one of them.
func (p *Policies) Issuers() []*Issuer { return p.issuers }

// policy is a compiled Policy.
type policy struct {
	domain      string
	credentials []credential
	// anonymous lets a request without a credential pass.
	anonymous, preflight, unsafePaths bool
	// The statuses of a request without a credential, with one that is not valid, and with a token that is not valid.
	absent, invalid, invalidToken int
	access                        []accessRule
	limits, refused               []descriptorMaker
	headers                       [4]string // IdentityHeaders.Names
	// strip are the headers that are removed from every request. A header that looks like one of those, or like one that
	// is set or kept, is removed, too.
	strip      reply.Names
	lookalikes lookalikes
	// removeQuery and cookies are the query parameters and cookies that hold credentials.
	removeQuery, cookies []string
	// trustsHops is true if an action reads x-forwarded-for, needsPeer if one uses the address of the peer.
	trustsHops, needsPeer bool
	challenges            map[reply.Reason]string
}

// credential is a compiled Credential: an API key, a token (issuer) or a certificate (principals).
type credential struct {
	place      place
	issuer     *Issuer
	principals []string
}

// place is a compiled Source: a kind of place, and the name there.
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

// Issuer holds the settings for the tokens of one issuer: a JWT with its defaults.
type Issuer struct {
	Name                               string // iss
	Audiences, Algorithms              []string
	Leeway                             time.Duration
	JWKSFile, JWKSURL                  string // one of them
	OwnerClaim, PlanClaim, ScopesClaim string // PlanClaim can be ""
}

// compile compiles a policy without mistakes.
func (p *Policy) compile(domain string, headers reply.Headers) *policy {
	p = p.WithDefaults()
	c := &policy{
		domain:    domain,
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

// compileNames sets the headers, query parameters and cookies that are removed from requests.
func (p *policy) compileNames(keep []string, headers reply.Headers) {
	remove := slices.Concat(envoyOnly[:], headers.Names())
	for _, name := range overrideHeaders {
		if !slices.Contains(keep, name) {
			remove = append(remove, name)
		}
	}
	for i := range p.credentials {
		switch at := p.credentials[i].place; at.in {
		case inHeader:
			remove = append(remove, at.name)
		case inQuery:
			p.removeQuery = append(p.removeQuery, at.name)
		case inCookie:
			p.cookies = append(p.cookies, at.name)
		}
	}
	p.strip = reply.NewNames(remove)
	p.lookalikes = newLookalikes(slices.Concat(remove, keep, p.headers[:]))
}

// compile returns the compiled credential. It must be one of a policy with defaults.
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

// header returns the name of the header that holds the credential; "" for none.
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

// compileChallenges makes the WWW-Authenticate of each reason for a refusal (RFC 9110, 11.6.1): the accepted
// credentials, and after a refused token the error of RFC 6750, 3.1. Only errors of tokens with a valid signature have
// a description, so that an attacker with a forged token learns nothing.
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

// challenge returns the part of WWW-Authenticate for one credential. problem is the error of a token.
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

// realm returns the domain in a form for a quoted string.
func realm(domain string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return '_'
		}
		return c
	}, domain)
}
