package authz

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/reply"
)

// errAbsent is the error for a request without a credential.
var errAbsent = errors.New("no credential")

// errTooOften means that a limit of Policy.Refused is exceeded, so that no server is asked. Pending.limited has it.
var errTooOften = errors.New("refused too often")

// errNotNow means that a check would take long (Pending.now).
var errNotNow = errors.New("the credential is not checked yet")

// authenticate sets the identity of the client, and returns the first credential that the request carries, nil for
// none. An owner or plan that the upstream could mistake for another is invalid. The error can be errAbsent,
// errNotNow or errTooOften. With an error, the identity stays unset.
func (a *Authorizer) authenticate(ctx context.Context, p *Pending) (carried *accepted, err error) {
	for i := range p.policy.credentials {
		c := &p.policy.credentials[i]
		id, err := a.try(ctx, c, p)
		switch {
		case err == errAbsent: //nolint:errorlint // try returns exactly this value
			continue
		case err != nil:
			return c, err
		case credential.CheckText(id.Owner) != nil, id.Plan != "" && credential.CheckText(id.Plan) != nil:
			return c, credential.Invalid("unsafe_name")
		}
		p.Decision.Identity = id
		return c, nil
	}
	return nil, errAbsent
}

func (a *Authorizer) try(ctx context.Context, c *accepted, p *Pending) (credential.Identity, error) {
	sent, err := find(c.place, p.facts.request, p.facts.query)
	if err != nil {
		return credential.Identity{}, err
	}
	checker := c.checker
	if checker == nil {
		checker = a.cfg.Checkers[c.traits.Name]
	}
	if checker == nil {
		return credential.Identity{}, credential.ErrInvalid
	}
	if slow, ok := checker.(credential.Slow); ok && (p.now || c.traits.Remote) {
		if id, ok := slow.Known(c.kind, sent); ok {
			return id, nil
		}
		switch {
		case p.now:
			return credential.Identity{}, errNotNow
		case ctx.Err() == nil && a.tooOften(ctx, p):
			return credential.Identity{}, errTooOften
		}
	}
	return checker.Identify(ctx, c.kind, sent)
}

// tooOften reports whether the request, were it refused, would exceed a limit of Policy.Refused. If so, it sets
// Pending.limited.
func (a *Authorizer) tooOften(ctx context.Context, p *Pending) bool {
	if p.Peek == nil {
		return false
	}
	p.describe(p.policy.refused)
	q := p.Query
	q.Refused, q.Dry = true, true
	if len(q.Descriptors) > 0 {
		p.limited = p.Peek(ctx, q)
	}
	p.Query.Descriptors = texts.Clear(q.Descriptors)
	return p.limited != nil && new(Decision).limitRefused(p.limited) == FailureLimited
}

// explain sets the cause of a credential.Error, and the claims that its token, or the token of the identity, lacks.
func (d *Decision) explain(err error) {
	d.Absent = append(d.Absent, d.Identity.Absent...)
	if e, ok := errors.AsType[*credential.Error](err); ok {
		d.Cause, d.Absent = e.Cause, append(d.Absent, e.Absent...)
	}
}

// failure returns why a request has no valid credential, "" if it has one, or one that cannot be checked now.
func failure(err error) reply.Reason {
	switch {
	case err == nil, errors.Is(err, credential.ErrUnavailable):
		return ""
	case errors.Is(err, errAbsent):
		return reply.ReasonAbsent
	case errors.Is(err, credential.ErrExpired):
		return reply.ReasonExpired
	case errors.Is(err, credential.ErrNotYet):
		return reply.ReasonNotYet
	case errors.Is(err, credential.ErrDisabled):
		return reply.ReasonDisabled
	}
	return reply.ReasonInvalid
}

// find returns the credential. If a request carries two, it is invalid, because the upstream might read the other one.
func find(at credential.Place, r *Request, query string) (string, error) {
	switch at.In {
	case credential.Header:
		return single(r.Headers.first(at.Name))
	case credential.Scheme:
		return findScheme(at.Name, r.Headers)
	case credential.Query:
		return single(firstOf(queryValues(query, at.Name)))
	case credential.Cookie:
		return single(firstOf(cookieValues(r.Headers, at.Name)))
	case credential.Certificate:
		if r.Principal != "" {
			return r.Principal, nil
		}
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
		return "", credential.Invalid("several")
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
func findScheme(wanted string, headers Headers) (string, error) {
	value, err := single(headers.first("authorization"))
	if err != nil {
		return "", err
	}
	scheme, sent := cutScheme(value)
	if !strings.EqualFold(scheme, wanted) {
		return "", errAbsent
	}
	return single(sent, 1)
}

// cutScheme splits a value after the scheme. Like many parsers, it accepts a tab there.
func cutScheme(value string) (scheme, sent string) {
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
		if k, v, _ := strings.Cut(pair, "="); strings.TrimSpace(k) == name { // `name =` is read as `name=` by many
			values = append(values, strings.Trim(strings.TrimSpace(v), `"`))
		}
	}
	return values
}
