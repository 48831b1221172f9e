package authz

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// The methods of identities.
const (
	MethodAPIKey    = "api_key"
	MethodJWT       = "jwt"
	MethodMTLS      = "mtls"
	MethodAnonymous = "anonymous"
)

// errAbsent is the error for a request without a credential.
var errAbsent = errors.New("no credential")

// errNotNow means that a check would take long (Pending.now).
var errNotNow = errors.New("the credential is not checked yet")

// authenticate sets the identity of the client, and returns the first credential that the request carries, nil for
// none. An owner or plan that the upstream could mistake for another is invalid. The error can be errAbsent or
// errNotNow. With an error, the identity stays unset.
func (a *Authorizer) authenticate(ctx context.Context, p *Pending) (carried *credential, err error) {
	for i := range p.policy.credentials {
		c := &p.policy.credentials[i]
		id, err := a.try(ctx, c, p)
		switch {
		case err == errAbsent: //nolint:errorlint // try returns exactly this value
			continue
		case err != nil:
			return c, err
		case !id.named():
			return c, Invalid("unsafe_name")
		}
		p.Decision.Identity = id
		return c, nil
	}
	return nil, errAbsent
}

func (a *Authorizer) try(ctx context.Context, c *credential, p *Pending) (Identity, error) {
	r := p.facts.request
	if c.principals != nil {
		switch {
		case r.Principal == "":
			return Identity{}, errAbsent
		case !slices.ContainsFunc(c.principals, func(pattern string) bool { return matchPrincipal(pattern, r.Principal) }):
			return Identity{}, Invalid("principal")
		}
		return Identity{Method: MethodMTLS, Owner: r.Principal}, nil
	}
	secret, err := c.place.find(r, p.facts.query)
	switch {
	case err != nil:
		return Identity{}, err
	case c.issuer != nil && a.cfg.Tokens != nil && p.now:
		if id, ok := a.cfg.Tokens.Known(c.issuer, secret); ok {
			return id, nil
		}
		return Identity{}, errNotNow
	case c.issuer != nil && a.cfg.Tokens != nil:
		return a.cfg.Tokens.Check(ctx, c.issuer, secret)
	case c.issuer == nil && a.cfg.Keys != nil:
		return a.cfg.Keys.Check(secret)
	}
	return Identity{}, ErrInvalid
}

// matchPrincipal compares a pattern with a principal part by part; `/` and `,` separate parts. So a `*` matches within
// one segment of a SPIFFE ID or one part of a subject, and never several names of a list.
func matchPrincipal(pattern, principal string) bool {
	const separators = "/,"
	if pattern == "*" {
		return true
	}
	for {
		p, s := strings.IndexAny(pattern, separators), strings.IndexAny(principal, separators)
		if p < 0 || s < 0 {
			return p == s && descriptors.Match(pattern, principal)
		}
		if pattern[p] != principal[s] || !descriptors.Match(pattern[:p], principal[:s]) {
			return false
		}
		pattern, principal = pattern[p+1:], principal[s+1:]
	}
}

// find returns the credential. If a request carries two, it is invalid, because the upstream might read the other one.
func (at *place) find(r *Request, query string) (string, error) {
	switch at.in {
	case inHeader:
		return single(r.Headers.first(at.name))
	case inScheme:
		return at.findScheme(r.Headers)
	case inQuery:
		return single(firstOf(queryValues(query, at.name)))
	case inCookie:
		return single(firstOf(cookieValues(r.Headers, at.name)))
	}
	return "", errAbsent
}

// single returns a value if there is only one. first is the first of count values.
func single(first string, count int) (string, error) {
	value := strings.TrimSpace(first)
	switch {
	case count == 0, count == 1 && value == "":
		return "", errAbsent
	case count > 1 || strings.Contains(value, ","): // Envoy joins repeated headers with commas
		return "", Invalid("several")
	}
	return value, nil
}

func firstOf(values []string) (first string, count int) {
	if len(values) > 0 {
		first = values[0]
	}
	return first, len(values)
}

// findScheme returns the credential of an Authorization header with this scheme (RFC 9110, 11.6.2).
func (at *place) findScheme(headers Headers) (string, error) {
	value, err := single(headers.first("authorization"))
	if err != nil {
		return "", err
	}
	scheme, credential := cutScheme(value)
	if !strings.EqualFold(scheme, at.name) {
		return "", errAbsent
	}
	return single(credential, 1)
}

// cutScheme splits a value after the scheme. Like many parsers, it accepts a tab there.
func cutScheme(value string) (scheme, credential string) {
	value = strings.TrimSpace(value)
	end := strings.IndexAny(value, " \t")
	if end < 0 {
		return value, ""
	}
	return value[:end], value[end:]
}

// queryValues returns the values of a parameter. It skips the parts of a query that it cannot decode.
func queryValues(query, name string) (values []string) {
	for pair := range strings.SplitSeq(query, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if k, err := url.QueryUnescape(key); err != nil || k != name {
			continue
		}
		v, err := url.QueryUnescape(value)
		if err != nil {
			v = value
		}
		values = append(values, v)
	}
	return values
}

// cookieValues returns the values of a cookie (RFC 6265, 5.4).
func cookieValues(headers Headers, name string) (values []string) {
	cookies, _ := headers.joined("cookie", ";")
	for pair := range strings.SplitSeq(cookies, ";") {
		if k, v, _ := strings.Cut(strings.TrimSpace(pair), "="); k == name {
			values = append(values, strings.Trim(v, `"`))
		}
	}
	return values
}
