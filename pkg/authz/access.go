package authz

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

type accessRule struct {
	hosts, methods []string // hosts in the form of hostname
	path           pathPattern
	require        Requirement // never Unset
	scopes         []string
	position       string
}

// compile returns the rule in the form for requests. It must be one of a policy with defaults.
func (a *Access) compile() accessRule {
	return accessRule{
		hosts: a.Hosts, methods: a.Methods, path: a.Path.compile(),
		require: a.Require, scopes: a.Scopes, position: a.Position,
	}
}

// anyAccess is the rule for a request that no rule matches: it needs a credential.
var anyAccess = (&Access{Require: NeedCredential}).compile()

// rule returns the first access rule that matches the request. host is a result of hostname, path one of plainPath.
func (p *policy) rule(r *Request, host, path string) *accessRule {
	if len(p.access) == 0 {
		return &anyAccess
	}
	other := otherEnd(path)
	for i := range p.access {
		if a := &p.access[i]; a.match(r, host, path, other) {
			return a
		}
	}
	return &anyAccess
}

// match reports whether the rule matches a request. A rule that opens matches its methods and path exactly. A rule that
// restricts also matches variants that many upstreams treat as equal: methods in other cases, and paths with or without
// a slash at the end.
func (a *accessRule) match(r *Request, host, path, other string) bool {
	if !r.HTTP && (len(a.hosts) > 0 || len(a.methods) > 0 || a.path.kind != anyPath) {
		return false
	}
	return (len(a.methods) == 0 || a.takes(r.Method)) &&
		(len(a.hosts) == 0 || matchAny(a.hosts, host)) &&
		(a.path.match(path) || a.require != Open && a.path.match(other))
}

func (a *accessRule) takes(method string) bool {
	return slices.ContainsFunc(a.methods, func(m string) bool {
		return m == method || a.require != Open && strings.EqualFold(m, method)
	})
}

// otherEnd returns the path without its slash at the end, or with one if it has none.
func otherEnd(path string) string {
	if without, ok := strings.CutSuffix(path, "/"); ok {
		return without
	}
	return path + "/"
}

func matchAny(patterns []string, s string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return descriptors.Match(p, s) })
}

// preflight reports whether this is a CORS preflight. Browsers send it without credentials (WHATWG Fetch).
func (r *Request) preflight() bool {
	origin, _ := r.Headers.Get("origin")
	method, _ := r.Headers.Get("access-control-request-method")
	return r.Method == "OPTIONS" && origin != "" && method != ""
}

// granted reports whether an identity has all scopes.
func granted(id *credential.Identity, scopes []string) bool {
	return !slices.ContainsFunc(scopes, func(s string) bool { return !slices.Contains(id.Scopes, s) })
}
