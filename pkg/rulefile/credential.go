package rulefile

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// maxCredentials is how many ways there can be to say who calls: each is looked for in every request.
const maxCredentials = 32

// maxLeeway is how far clocks may differ at most: a stolen token should not live on for long after its end.
const maxLeeway = time.Minute

// credentials makes the ways to say who calls, and reports those that can never be tried.
func (b builder) credentials(list []credentialKeys) []authz.Credential {
	var credentials []authz.Credential
	for i, c := range list {
		if i == maxCredentials {
			b.fail(c.at, fmt.Sprintf("more than %d credentials", maxCredentials), "each is looked for in every request: join some")
			break
		}
		b.exactlyOne("an element of `credentials`", c.at, chosen("api_key", c.apiKey), chosen("jwt", c.jwt), chosen("mtls", c.mtls))
		var credential authz.Credential
		switch {
		case c.apiKey.set:
			credential.APIKey = b.apiKey(c.apiKey)
		case c.jwt.set:
			credential.JWT = b.jwt(c.jwt)
		case c.mtls.set:
			credential.MTLS = &authz.MTLS{Principals: plainTexts(c.mtls.value.principals.value)}
			if !c.mtls.value.principals.mentioned && !b.strange[c.mtls.at] {
				b.fail(c.mtls.key, "`mtls` without `principals`", "add `principals: [\"spiffe://example.org/ns/*/sa/*\"]`; `\"*\"` takes every certificate that Envoy has verified")
			}
		}
		for j, earlier := range credentials {
			if takes(earlier, credential) {
				b.fail(c.at, "this credential is never tried: the one at "+b.position(list[j].at)+" reads the same place of a request",
					"the first that a request carries decides: give one of them a place of its own, or join them")
				break
			}
		}
		credentials = append(credentials, credential)
	}
	return credentials
}

// takes reports whether every request that carries the later credential carries the earlier one.
func takes(earlier, later authz.Credential) bool {
	a, b := sourceOf(earlier), sourceOf(later)
	switch {
	case earlier.MTLS != nil || later.MTLS != nil:
		return earlier.MTLS != nil && later.MTLS != nil
	case a == (authz.Source{}) || b == (authz.Source{}):
		return false // reported
	case b.Scheme != "":
		return strings.EqualFold(a.Scheme, b.Scheme) || a.Header == "authorization"
	}
	return a == b
}

func sourceOf(c authz.Credential) authz.Source {
	switch {
	case c.APIKey != nil:
		return c.APIKey.Source
	case c.JWT != nil:
		return c.JWT.Source
	}
	return authz.Source{}
}

func (b builder) apiKey(k given[sourceKeys]) *authz.APIKey {
	b.exactlyOne("`api_key`", k.at, k.value.choices()...)
	return &authz.APIKey{Source: b.source(k.value)}
}

func (s sourceKeys) choices() []choice {
	return []choice{chosen("header", s.header), chosen("scheme", s.scheme), chosen("query", s.query), chosen("cookie", s.cookie)}
}

// source is the place of a request where a credential stands.
func (b builder) source(s sourceKeys) authz.Source {
	switch {
	case s.header.set:
		name := b.headerName(s.header)
		switch {
		case name == "cookie":
			b.fail(s.header.at, "`cookie` is a header of many values", "for one cookie write `cookie: <its name>`")
		case slices.Contains(hopByHop(), name), name == "host", name == "content-length":
			b.fail(s.header.at, quoted(name)+" cannot carry a credential: Envoy and HTTP use it themselves", "choose a header such as `x-api-key`")
		}
		return authz.Source{Header: name}
	case s.scheme.set:
		if !isToken(s.scheme.value) {
			b.fail(s.scheme.at, quoted(s.scheme.value)+" cannot be a scheme of the Authorization header", "want one word, such as `ApiKey` or `Bearer`")
		}
		return authz.Source{Scheme: s.scheme.value}
	case s.query.set:
		if s.query.value == "" || strings.ContainsAny(s.query.value, "?&=#") {
			b.fail(s.query.at, quoted(s.query.value)+" cannot be the name of a query parameter", "want the name alone, such as `api_key`")
		}
		return authz.Source{Query: s.query.value}
	case s.cookie.set:
		if !isToken(s.cookie.value) {
			b.fail(s.cookie.at, quoted(s.cookie.value)+" cannot be the name of a cookie", "want the name alone, such as `session`")
		}
		return authz.Source{Cookie: s.cookie.value}
	}
	return authz.Source{}
}

func (b builder) jwt(g given[jwtKeys]) *authz.JWT {
	j := g.value
	token := &authz.JWT{
		Source:      authz.Source{Scheme: "Bearer"},
		Issuer:      j.issuer.value,
		Audiences:   plainTexts(j.audiences.value),
		Algorithms:  b.algorithms(j.algorithms.value),
		Leeway:      j.leeway.value,
		JWKSFile:    j.jwksFile.value,
		JWKSURL:     j.jwksURL.value,
		OwnerClaim:  j.ownerClaim.or("sub"),
		PlanClaim:   j.planClaim.value,
		ScopesClaim: j.scopesClaim.or("scope"),
	}
	if b.atMostOne(j.source.choices()...) > 0 {
		token.Source = b.source(j.source)
	}
	b.checkJWT(g)
	b.exactlyOne("`jwt`", g.at, chosen("jwks_url", j.jwksURL), chosen("jwks_file", j.jwksFile))
	b.checkKeysURL(j.jwksURL)
	if j.leeway.value > maxLeeway {
		b.fail(j.leeway.at, "`leeway` cannot be "+quoted(j.leeway.value.String()), "want at most `1m`: a token would be good for that long after its end")
	}
	return token
}

// checkJWT reports what a token cannot be checked without.
func (b builder) checkJWT(g given[jwtKeys]) {
	j := g.value
	missing := func(what, remedy string) { b.fail(g.key, "`jwt` without "+quoted(what), remedy) }
	if !j.issuer.mentioned {
		missing("issuer", "add `issuer: <the iss of the tokens>`")
	}
	if !j.audiences.mentioned {
		missing("audiences", "add `audiences: [<an aud of the tokens>]`: without it, tokens that were made for other services would be good here")
	}
	if !j.algorithms.mentioned {
		missing("algorithms", "add `algorithms: [RS256]`, or those that the issuer signs with")
	}
	empty := func(name string, g given[string]) {
		if g.set && g.value == "" {
			b.fail(g.at, quoted(name)+" is empty", "write its value, or delete the key")
		}
	}
	empty("issuer", j.issuer)
	empty("jwks_file", j.jwksFile)
	empty("jwks_url", j.jwksURL)
	empty("owner_claim", j.ownerClaim)
}

// algorithms are the names of signature algorithms (RFC 7518, RFC 8037).
func (b builder) algorithms(items []item) []string {
	known := []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
	var names []string
	for _, i := range items {
		switch {
		case slices.Contains(known, i.text):
			names = append(names, i.text)
		case strings.HasPrefix(strings.ToUpper(i.text), "HS"):
			b.fail(i.at, "tokens are not accepted with "+quoted(i.text),
				"its key signs as well as it checks: whoever knows it here could make tokens, and a public key taken for it would let everybody", "want one of "+oneOf(known))
		case strings.EqualFold(i.text, "none"):
			b.fail(i.at, "tokens are not accepted with "+quoted(i.text), "such a token is not signed: anybody can make one", "want one of "+oneOf(known))
		default:
			b.fail(i.at, "no signature algorithm is named "+quoted(i.text), didYouMean(i.text, known), "want one of "+oneOf(known))
		}
	}
	return names
}

// checkKeysURL reports an address from which no keys can be had that are to be trusted.
func (b builder) checkKeysURL(address given[string]) {
	if address.value == "" {
		return
	}
	u, err := url.Parse(address.value)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		b.fail(address.at, "`jwks_url` cannot be "+quoted(address.value), "want a URL such as `https://idp.example/.well-known/jwks.json`; for a file write `jwks_file`")
	case u.User != nil:
		b.fail(address.at, "`jwks_url` with a user in it", "the keys are public: write the URL without")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		b.fail(address.at, "`jwks_url` cannot be plain http", "who can change the answer on its way can make tokens: write `https://`; http is for loopback only")
	}
}

// isLoopback reports whether a host is this machine.
func isLoopback(host string) bool {
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

// hostWithoutPort is the host of a pattern with a port.
func hostWithoutPort(pattern string) (host string, hasPort bool) {
	host, port, err := net.SplitHostPort(pattern)
	return host, err == nil && port != ""
}
