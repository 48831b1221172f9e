package authz

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// anyAccess is the rule for a request that none matches: it needs a credential.
var anyAccess = Access{Require: NeedCredential}

// access returns the first rule that matches the request. host is a Hostname, path is plain.
func (p *Policy) access(r *Request, host, path string) *Access {
	if len(p.Access) == 0 {
		return &anyAccess
	}
	other := otherEnd(path)
	for i := range p.Access {
		if a := &p.Access[i]; a.match(r, host, path, other) {
			return a
		}
	}
	return &anyAccess
}

// match reports whether the rule holds for a request. A rule opens what it says and nothing else. What it asks for, it also asks of
// what many an upstream takes for the same: the method in other letters, and the other path, with or without a slash at its end.
func (a *Access) match(r *Request, host, path, other string) bool {
	if !r.HTTP && (len(a.Hosts) > 0 || len(a.Methods) > 0 || a.Path != PathPattern{}) {
		return false
	}
	return (len(a.Methods) == 0 || a.takes(r.Method)) &&
		(len(a.Hosts) == 0 || matchAny(a.Hosts, host)) &&
		(a.Path.match(path) || a.Require != Open && a.Path.match(other))
}

func (a *Access) takes(method string) bool {
	return slices.ContainsFunc(a.Methods, func(m string) bool {
		return m == method || a.Require != Open && strings.EqualFold(m, method)
	})
}

// otherEnd is the path without the slash at its end, or with one.
func otherEnd(path string) string {
	if without, ok := strings.CutSuffix(path, "/"); ok {
		return without
	}
	return path + "/"
}

func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return descriptors.Match(p, s) })
}

// preflight reports whether a browser asks if it may send a request from another origin, which it does without credentials
// (WHATWG Fetch, CORS-preflight fetch).
func (r *Request) preflight() bool {
	origin, _ := r.Headers.Get("origin")
	method, _ := r.Headers.Get("access-control-request-method")
	return r.Method == "OPTIONS" && origin != "" && method != ""
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
