package rulefile

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

// headerName is the name of a header as requests are looked up with it: lower case. What can be none is reported.
func (b builder) headerName(name given[string]) string {
	b.checkHeaderName(name)
	return strings.ToLower(name.value)
}

// checkHeaderName reports what cannot be the name of a header.
func (b builder) checkHeaderName(name given[string]) {
	switch {
	case !name.set:
	case name.value == "":
		b.fail(name.at, "the name of a header is empty", "write a name such as `x-api-key`")
	case strings.HasPrefix(name.value, ":"):
		b.fail(name.at, quoted(name.value)+" is a pseudo-header of HTTP/2, not a header", "method, host and path have keys of their own in `access` and `actions`")
	case !isToken(name.value):
		b.fail(name.at, quoted(name.value)+" cannot be the name of a header", "want letters, digits and `-`, such as `x-api-key`")
	}
}

// isToken reports whether a text is a token of RFC 9110, 5.6.2, as the names of headers, methods and schemes are.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
	})
}

// hopByHop are the headers that end at the next proxy (RFC 9110, 7.6.1), whatever this service sets.
func hopByHop() []string {
	return []string{
		"connection", "keep-alive", "proxy-connection", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade",
	}
}

// identityHeaders are the names under which the upstream is told who calls. What is wrong with a default is reported at a place;
// the credentials are those that requests bring.
func (b builder) identityHeaders(h identityHeaderKeys, at place, credentials []authz.Credential) authz.IdentityHeaders {
	rows := []struct {
		what  string
		given given[string]
		name  string
	}{
		{"owner", h.owner, h.owner.or("x-auth-owner")},
		{"plan", h.plan, h.plan.or("x-auth-plan")},
		{"method", h.method, h.method.or("x-auth-method")},
		{"key_id", h.keyID, h.keyID.or("x-auth-key-id")},
	}
	first := map[string]string{}
	for _, row := range rows {
		other, taken := first[row.name]
		switch {
		case row.name == "":
			continue
		case taken && !row.given.set: // the default of this one is the name of the one before
			b.fail(b.givenFirst(h, row.name), quoted(row.name)+" is the header of "+quoted(row.what)+" already", "give them names of their own, or write "+quoted(row.what+": off"))
		case taken:
			b.fail(row.given.at, quoted(row.name)+" is the header of "+quoted(other)+" already", "give them names of their own; `off` sends none")
		case row.given.set:
			b.checkIdentityHeader(row.given, credentials)
		default:
			b.checkIdentityHeader(given[string]{value: row.name, at: at}, credentials)
		}
		first[row.name] = row.what
	}
	return authz.IdentityHeaders{Owner: rows[0].name, Plan: rows[1].name, Method: rows[2].name, KeyID: rows[3].name}
}

// givenFirst is where the file first gives an identity header this name.
func (b builder) givenFirst(h identityHeaderKeys, name string) place {
	for _, g := range []given[string]{h.owner, h.plan, h.method, h.keyID} {
		if g.set && g.value == name {
			return g.at
		}
	}
	return place{}
}

// checkIdentityHeader reports names under which nothing could be told to the upstream, or something else is told.
func (b builder) checkIdentityHeader(name given[string], credentials []authz.Credential) {
	const remedy = "choose a name such as `x-auth-owner`"
	switch {
	case !isToken(name.value):
		b.checkHeaderName(name)
	case slices.Contains(hopByHop(), name.value):
		b.fail(name.at, quoted(name.value)+" cannot tell who calls: it ends at the next proxy and never reaches the upstream", remedy)
	case slices.Contains([]string{"host", "content-length", "content-type", "content-encoding", "cookie", "authorization"}, name.value):
		b.fail(name.at, quoted(name.value)+" cannot tell who calls: it means something else to the upstream", remedy)
	case slices.Contains(authz.OverrideHeaders(), name.value):
		b.fail(name.at, quoted(name.value)+" cannot tell who calls: applications read another path, host or method from it",
			remedy)
	case strings.HasPrefix(name.value, "x-envoy-"), name.value == "x-forwarded-for":
		b.fail(name.at, quoted(name.value)+" cannot tell who calls: Envoy sets it itself", remedy)
	case brought(credentials, name.value):
		b.fail(name.at, quoted(name.value)+" cannot tell who calls: a credential is in it, and credentials do not reach the upstream", "give the credential or this another header, under `headers:`")
	}
}

// keepHeaders are headers that stay on requests although applications may read another path, host or method from them.
func (b builder) keepHeaders(items []item) []string {
	known := authz.OverrideHeaders()
	var names []string
	for _, i := range items {
		name := strings.ToLower(i.text)
		switch {
		case !slices.Contains(known, name):
			b.fail(i.at, quoted(i.text)+" is not one of the headers that are removed",
				didYouMean(name, known), "want one of "+oneOf(known))
		case !slices.Contains(names, name):
			names = append(names, name)
		}
	}
	return names
}
