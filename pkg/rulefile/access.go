package rulefile

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
)

// access makes the rules of access; unsafe says that paths pass which the upstream may read otherwise.
func (b builder) access(list []accessKeys, unsafe bool) []authz.Access {
	var rules []authz.Access
	for _, a := range list {
		path, ok := b.path(a.path, unsafe)
		rule := authz.Access{
			Hosts:    b.hosts(a.hosts.value),
			Methods:  b.methods(a.methods.value),
			Path:     path,
			Require:  a.require.or(authz.NeedCredential),
			Scopes:   plainTexts(a.scopes.value),
			Position: b.position(a.at),
		}
		if !a.hosts.mentioned && !a.methods.mentioned && !a.path.mentioned && !a.require.mentioned && !a.scopes.mentioned && !b.strange[a.at] {
			b.fail(a.at, "a rule of access that says nothing", "add `path`, `methods` or `hosts` to say when it holds, and `require` or `scopes` to say what it asks for")
		}
		b.checkScopes(a)
		if ok && a.readable() && !b.strange[a.at] {
			b.checkReached(a, rule, rules)
			rules = append(rules, rule)
		}
	}
	return rules
}

// readable reports whether hosts and methods could be read.
func (a accessKeys) readable() bool {
	return a.hosts.set == a.hosts.mentioned && a.methods.set == a.methods.mentioned
}

// checkScopes reports scopes that would not be asked for, and such as no credential can have.
func (b builder) checkScopes(a accessKeys) {
	if a.scopes.set {
		switch a.require.or(authz.NeedCredential) {
		case authz.Open:
			b.fail(a.scopes.key, "`scopes` beside `require: open`", "what is open asks for nothing: delete `require`, or `scopes`")
		case authz.Denied:
			b.fail(a.scopes.key, "`scopes` beside `require: denied`", "what is denied is denied to all: delete `require`, or `scopes`")
		}
	}
	for _, scope := range a.scopes.value {
		if strings.ContainsAny(scope.text, " \t,") {
			b.fail(scope.at, quoted(scope.text)+" cannot be a scope", "a scope is one word; several are elements of their own, and all of them are asked for")
		}
	}
}

// hosts are the patterns of hosts in the form that authz.Hostname gives the hosts of requests.
func (b builder) hosts(items []item) []string {
	var hosts []string
	for _, i := range items {
		host, hasPort := hostWithoutPort(i.text)
		pattern, ok := hostPattern(i.text)
		switch {
		case hasPort && !strings.ContainsAny(i.text, "/?#@ "):
			b.fail(i.at, "a host is compared without its port", "write "+quoted(host))
		case !ok:
			b.fail(i.at, quoted(i.text)+" cannot be a host",
				"want a name such as `api.example.com` or `*.example.com`, without scheme and path")
		}
		hosts = append(hosts, pattern)
	}
	return hosts
}

// hostPattern returns a host, or a pattern of hosts with `*`, in the form that authz.Hostname gives those of requests. ok is false for
// what no request has. An IPv6 address can be written without brackets.
func hostPattern(text string) (pattern string, ok bool) {
	if strings.Contains(text, "*") {
		return strings.TrimSuffix(strings.ToLower(text), "."), !strings.ContainsAny(text, "/?#@ ")
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
		text = "[" + text + "]"
	}
	return authz.Hostname(text)
}

// methods are HTTP methods, which are case-sensitive (RFC 9110, 9.1).
func (b builder) methods(items []item) []string {
	known := []string{
		http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace,
	}
	var methods []string
	for _, i := range items {
		switch upper := strings.ToUpper(i.text); {
		case slices.Contains(known, i.text):
		case !isToken(i.text) || i.text == "*":
			b.fail(i.at, quoted(i.text)+" cannot be a method", "want one such as `GET`; without `methods` the rule holds for all")
		case i.text != upper:
			b.fail(i.at, "no request has the method "+quoted(i.text), "methods are in upper case: write "+quoted(upper))
		case didYouMean(i.text, known) != "":
			b.warn(i.at, quoted(i.text)+" is not a method of HTTP", didYouMean(i.text, known))
		}
		methods = append(methods, i.text)
	}
	return methods
}

// path makes the pattern of a path; ok is false when it can match none. Requests are compared with it after percent-decoding.
func (b builder) path(p given[pathKeys], unsafe bool) (pattern authz.PathPattern, ok bool) {
	keys := p.value
	if !p.set {
		return pattern, !p.mentioned
	}
	ok = b.exactlyOne("a `path`", p.at, chosen("exact", keys.exact), chosen("prefix", keys.prefix), chosen("template", keys.template))
	for _, text := range []given[string]{keys.exact, keys.prefix, keys.template} {
		if text.mentioned && (!text.set || !b.checkPath(text, unsafe) || !b.checkVariables(text, text == keys.template)) {
			ok = false
		}
	}
	return authz.PathPattern{Exact: keys.exact.value, Prefix: keys.prefix.value, Template: keys.template.value}, ok
}

// checkPath reports a pattern that no path can match, or only one that is refused before rules are looked at; otherwise it returns
// true.
func (b builder) checkPath(pattern given[string], unsafe bool) bool {
	path := pattern.value
	refused := func(what string) {
		b.fail(pattern.at, "no path matches: "+what+" is refused, since the upstream may read it otherwise", "write the path as the upstream reads it; `unsafe_paths: allow` lets such paths pass")
	}
	switch {
	case path == "":
		b.fail(pattern.at, "the path is empty", "a path begins with `/`; without `path` the rule holds for all")
	case path[0] != '/':
		b.fail(pattern.at, "a path begins with `/`, not as "+quoted(path), "write "+quoted("/"+strings.TrimLeft(path, "/")))
	case strings.ContainsAny(path, "?#"):
		b.fail(pattern.at, "no path has a `?` or `#` in it", "the query is not compared: write the path alone")
	case strings.Contains(path, "%"):
		b.fail(pattern.at, "no path matches: paths are compared after percent-decoding", "write what the `%` stands for; encoded slashes are refused")
	case unsafe || !authz.UnsafePath(path):
		return true
	case strings.Contains(path, ";"):
		refused("`;`")
	case strings.Contains(path, `\`):
		refused("`\\`")
	case strings.Contains(path, "//"):
		refused("`//`")
	case strings.Contains(path, "/."):
		refused("a segment `.` or `..`")
	default:
		refused("such a path")
	}
	return false
}

// checkVariables reports {name} where it stands for itself, or for less than a segment; otherwise it returns true. It warns of `*`,
// which always stands for itself.
func (b builder) checkVariables(pattern given[string], isTemplate bool) bool {
	if strings.Contains(pattern.value, "*") {
		b.warn(pattern.at, "`*` stands for itself in a path", "`prefix: /users/` matches all below, `template: \"/users/{id}\"` one segment")
	}
	if !isTemplate {
		if strings.ContainsAny(pattern.value, "{}") {
			b.fail(pattern.at, "`{` and `}` have a meaning in `template` only", "write "+quoted("template: \""+pattern.value+"\""))
			return false
		}
		return true
	}
	ok, seen := true, map[string]bool{}
	for segment := range strings.SplitSeq(pattern.value, "/") {
		name, opened := strings.CutPrefix(segment, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case !strings.ContainsAny(segment, "{}"):
			continue
		case !opened || !closed || strings.ContainsAny(name, "{}"):
			b.fail(pattern.at, fmt.Sprintf("%s is not a segment of a template", quoted(segment)), "`{name}` stands for a whole segment, between two slashes: `/users/{id}`")
		case name == "":
			b.fail(pattern.at, "`{}` has no name", "write what the segment is, for example `{id}`")
		case seen[name]:
			b.fail(pattern.at, quoted(segment)+" is in the template twice", "give the segments names of their own")
		default:
			seen[name] = true
			continue
		}
		ok = false
	}
	return ok
}
