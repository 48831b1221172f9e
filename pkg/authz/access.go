package authz

import (
	"net"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// anyAccess is the rule for a request that none matches: it needs a credential.
var anyAccess = Access{Require: NeedCredential}

// access returns the first rule that matches the request. path is plain.
func (p *Policy) access(r *Request, path string) *Access {
	for i := range p.Access {
		if a := &p.Access[i]; a.match(r, path) {
			return a
		}
	}
	return &anyAccess
}

func (a *Access) match(r *Request, path string) bool {
	if !r.HTTP && (len(a.Hosts) > 0 || len(a.Methods) > 0 || a.Path != PathPattern{}) {
		return false
	}
	return (len(a.Methods) == 0 || slices.Contains(a.Methods, r.Method)) &&
		(len(a.Hosts) == 0 || matchAny(a.Hosts, hostname(r.Host))) &&
		a.Path.match(path)
}

// hostname is the host as rules name it: without port, in lower case, without the dot at the end.
func hostname(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return descriptors.Match(p, s) })
}

// preflight reports whether a browser asks if it may send a request from another origin, which it does without credentials
// (WHATWG Fetch, CORS-preflight fetch).
func (r *Request) preflight() bool {
	_, origin := r.Headers.Get("origin")
	_, method := r.Headers.Get("access-control-request-method")
	return r.Method == "OPTIONS" && origin && method
}

// granted reports whether the identity has all scopes.
func (id *Identity) granted(scopes []string) bool {
	for _, s := range scopes {
		if !slices.Contains(id.Scopes, s) {
			return false
		}
	}
	return true
}
