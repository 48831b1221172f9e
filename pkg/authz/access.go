package authz

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
)

// accessRule is a compiled Access of a policy with defaults.
type accessRule struct {
	Access
	path     pathPattern
	networks *networks.Table // nil for all addresses
	by       []entryMaker    // the actions that make the entry of Enforce. The first one that has a value decides.
	next     int             // the index of the next rule
}

func (a *Access) compile() accessRule { return accessRule{Access: *a, path: a.Path.compile()} }

// anyAccess is the rule for a request that no rule matches: it needs a credential.
var anyAccess = (&Access{Require: NeedCredential}).compile()

// rule returns the first access rule from an index on that matches the request. host is a result of hostname, path one
// of plainPath.
func (p *policy) rule(r *Request, host, path string, from int) *accessRule {
	if len(p.access) == from {
		return &anyAccess
	}
	other := otherEnd(path)
	for i := from; i < len(p.access); i++ {
		if a := &p.access[i]; a.match(r, host, path, other) {
			return a
		}
	}
	return &anyAccess
}

// value returns the value of the entry of Enforce for a request, "" for none.
func (a *accessRule) value(f *facts) string {
	of := *f
	of.access = a
	for i := range a.by {
		if value, ok := a.by[i].value(&of); ok {
			return value
		}
	}
	return ""
}

// match reports whether the rule matches a request. A rule that opens matches its methods and path exactly. A rule that
// restricts also matches variants that many upstreams treat as equal: methods in other cases, and paths with or without
// a slash at the end.
func (a *accessRule) match(r *Request, host, path, other string) bool {
	if !r.HTTP && (len(a.Hosts) > 0 || len(a.Methods) > 0 || a.Path != nil) {
		return false
	}
	byHost := func(pattern string) bool { return descriptors.Match(pattern, host) }
	byMethod := func(m string) bool { return m == r.Method || a.Require != Open && strings.EqualFold(m, r.Method) }
	return (len(a.Methods) == 0 || slices.ContainsFunc(a.Methods, byMethod)) &&
		(len(a.Hosts) == 0 || slices.ContainsFunc(a.Hosts, byHost)) &&
		(a.path.match(path) || a.Require != Open && a.path.match(other)) &&
		(a.networks == nil || a.inNetworks(r))
}

func (a *accessRule) inNetworks(r *Request) bool {
	_, ok := a.networks.Find(r.client(a.TrustedHops))
	return ok
}

// otherEnd returns the path without its slash at the end, or with one if it has none.
func otherEnd(path string) string {
	if without, ok := strings.CutSuffix(path, "/"); ok {
		return without
	}
	return path + "/"
}

// preflight reports whether this is a CORS preflight. Browsers send it without credentials (WHATWG Fetch).
func (r *Request) preflight() bool {
	origin, _ := r.Headers.Get("origin")
	method, _ := r.Headers.Get("access-control-request-method")
	return r.Method == "OPTIONS" && origin != "" && method != ""
}
