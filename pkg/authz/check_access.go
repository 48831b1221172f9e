package authz

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// checkAccess checks the access rules, and reports those that never apply.
func (c *checker) checkAccess() {
	var before []accessRule
	var paths []string // of before
	compared := c.WithDefaults().Access
	for i := range c.Access {
		a, path := &c.Access[i], ratelimit.Element("access", i)
		if len(a.Hosts)+len(a.Methods)+len(a.Networks)+len(a.Scopes) == 0 && a.Path == nil && a.Require == Unset {
			c.At(path, below(path, "hosts", "methods", "path", "networks", "require", "scopes")...).Lacking().Fail(
				"an access rule without a key",
				"add `path`, `methods`, `hosts` or `networks` for the requests, and `require` or `scopes` for what they need")
		}
		if a.TrustedHops != 0 && len(a.Networks) == 0 {
			c.Key(path+".trusted_hops", path+".networks").Fail("`trusted_hops` without `networks`",
				"this rule reads no address: delete `trusted_hops`, or add `networks`")
		}
		ok := c.checkPattern(path+".path", a.Path)
		c.checkHosts(path+".hosts", a.Hosts)
		c.checkMethods(path+".methods", a.Methods)
		c.checkScopes(path+".scopes", a)
		c.checkEnforce(path, a)
		if !ok {
			continue
		}
		rule := compared[i].compile()
		c.checkReached(path, &rule, before, paths)
		if a.Enforce == nil { // else the rule does not decide all requests that it matches
			before, paths = append(before, rule), append(paths, path)
		}
	}
}

// checkEnforce reports mistakes in `enforce` of an access rule at a path.
func (c *checker) checkEnforce(path string, a *Access) {
	if a.Enforce == nil {
		return
	}
	if a.Require == Open {
		c.Key(path+".enforce", path+".require").Fail("`enforce` beside `require: open`",
			"an open rule refuses no request: delete `enforce`, or `require`")
	}
	var keys []string
	for _, m := range c.entryMakers("", new(networks.Tables)) { // only their keys matter
		if !slices.Contains(keys, m.key) {
			keys = append(keys, m.key)
		}
	}
	a.Enforce.Check(&c.Mistakes, path+".enforce", keys, "that an action of `limits` or `refused` makes")
}

// checkScopes reports scopes that are not required, and those that no credential can have.
func (c *checker) checkScopes(path string, a *Access) {
	switch {
	case len(a.Scopes) == 0:
	case a.Require == Open:
		c.Key(path).Fail("`scopes` beside `require: open`", "an open rule needs no scopes: delete `require`, or `scopes`")
	case a.Require == Denied:
		c.Key(path).Fail("`scopes` beside `require: denied`", "`denied` refuses every request: delete `require`, or `scopes`")
	}
	for i, scope := range a.Scopes {
		if strings.ContainsAny(scope, " \t,") {
			c.At(ratelimit.Element(path, i)).Fail(suggest.Quoted(scope)+" cannot be a scope",
				"a scope is one word; write one element for each scope, and the credential needs all of them")
		}
	}
}

func (c *checker) checkHosts(path string, hosts []string) {
	for i, text := range hosts {
		host, port, err := net.SplitHostPort(text)
		_, ok := hostPattern(text)
		switch {
		case err == nil && port != "" && !strings.ContainsAny(text, "/?#@ "):
			c.At(ratelimit.Element(path, i)).Fail("a host is compared without its port", "write "+suggest.Quoted(host))
		case !ok:
			c.At(ratelimit.Element(path, i)).Fail(suggest.Quoted(text)+" cannot be a host",
				"want a name such as `api.example.com` or `*.example.com`, without scheme and path")
		}
	}
}

// hostPattern returns a host, or a pattern with `*`, in the form of hostname. ok is false for one that no request has.
func hostPattern(text string) (pattern string, ok bool) {
	if strings.Contains(text, "*") {
		return strings.TrimSuffix(strings.ToLower(text), "."), !strings.ContainsAny(text, "/?#@ ")
	}
	if ip, err := netip.ParseAddr(text); err == nil && ip.Is6() {
		text = "[" + text + "]"
	}
	return hostname(text)
}

// checkMethods checks HTTP methods, which are case-sensitive (RFC 9110, 9.1).
func (c *checker) checkMethods(path string, methods []string) {
	common := registeredMethods[:commonMethods]
	for i, method := range methods {
		at := ratelimit.Element(path, i)
		switch upper := strings.ToUpper(method); {
		case slices.Contains(registeredMethods[:], method):
		case !httpguts.ValidHeaderFieldName(method) || method == "*":
			c.At(at).Fail(
				suggest.Quoted(method)+" cannot be a method", "want one such as `GET`; without `methods`, the rule applies to all")
		case method != upper:
			c.At(at).Fail(
				"no request has the method "+suggest.Quoted(method), "methods are in upper case: write "+suggest.Quoted(upper))
		case suggest.Closest(method, common) != "":
			c.At(at).Warn(suggest.Quoted(method)+" is not a method of HTTP", suggest.DidYouMean(method, common))
		}
	}
}

// checkPattern checks the pattern of a path. It returns false for one that cannot match.
func (c *checker) checkPattern(path string, p *PathPattern) bool {
	if p == nil {
		return true
	}
	key, pattern := p.Form()
	at := path + "." + key
	return key != "" && c.checkPath(at, pattern) && c.checkVariables(at, pattern, key == "template")
}

// checkPath returns true for a pattern that an accepted path can match. It reports any other.
func (c *checker) checkPath(at, path string) bool {
	refused := func(what string) {
		c.At(at).Fail("no path matches: "+what+" is refused, because the upstream may read it differently",
			"write the path as the upstream reads it; `unsafe_paths: allow` lets such paths pass")
	}
	switch {
	case path == "":
		c.At(at).Fail("the path is empty", "a path begins with `/`; without `path`, the rule applies to all")
	case path[0] != '/':
		c.At(at).Fail(
			"a path begins with `/`, not as "+suggest.Quoted(path), "write "+suggest.Quoted("/"+strings.TrimLeft(path, "/")))
	case strings.ContainsAny(path, "?#"):
		c.At(at).Fail("no path has a `?` or `#` in it", "the query is not compared: write the path alone")
	case strings.Contains(path, "%"):
		c.At(at).Fail("no path matches: paths are compared after percent-decoding",
			"write what the `%` stands for; encoded slashes are refused")
	case c.UnsafePaths == Allow || !unsafePath(path):
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

// checkVariables reports a {name} that is not a whole segment; else it returns true. It warns of `*`, which is literal.
func (c *checker) checkVariables(at, pattern string, isTemplate bool) bool {
	if strings.Contains(pattern, "*") {
		c.At(at).Warn(
			"`*` stands for itself in a path", "`prefix: /users/` matches all below, `template: \"/users/{id}\"` one segment")
	}
	if !isTemplate {
		if strings.ContainsAny(pattern, "{}") {
			c.At(at).Fail("`{` and `}` have a meaning only in `template`", "write "+suggest.Quoted("template: \""+pattern+"\""))
			return false
		}
		return true
	}
	ok, seen := true, map[string]bool{}
	for segment := range strings.SplitSeq(pattern, "/") {
		name, opened := strings.CutPrefix(segment, "{")
		name, closed := strings.CutSuffix(name, "}")
		switch {
		case !strings.ContainsAny(segment, "{}"):
			continue
		case !opened || !closed || strings.ContainsAny(name, "{}"):
			c.At(at).Fail(fmt.Sprintf("%s is not a segment of a template", suggest.Quoted(segment)),
				"`{name}` stands for a whole segment, between two slashes: `/users/{id}`")
		case name == "":
			c.At(at).Fail("`{}` has no name", "write what the segment is, for example `{id}`")
		case seen[name]:
			c.At(at).Fail(suggest.Quoted(segment)+" is in the template twice", "give each segment its own name")
		default:
			seen[name] = true
			continue
		}
		ok = false
	}
	return ok
}

// The bounds of the comparison of access rules, because the work grows with their square.
const (
	maxCompared = 500
	maxPatterns = 32
)

// checkReached warns of a rule that never applies, because an earlier one matches all of its requests.
func (c *checker) checkReached(path string, rule *accessRule, before []accessRule, paths []string) {
	if len(before) > maxCompared || !rule.comparable() {
		return
	}
	i := slices.IndexFunc(before, func(earlier accessRule) bool { return earlier.covers(rule) })
	if i < 0 {
		return
	}
	keys := []string{"hosts", "methods", "networks", "path", "path.exact", "path.prefix", "path.template"}
	c.At(path, append(below(path, keys...), below(paths[i], keys...)...)...).Lacking().Warn(
		"this rule never applies: the one at "+cmp.Or(before[i].Position, paths[i])+
			" matches all of its requests",
		"the first rule that matches applies: put this one before it, or delete it")
}

func (a *accessRule) comparable() bool {
	return len(a.Hosts)+len(a.Methods)+len(a.Networks) <= maxPatterns
}

// covers reports whether a rule matches every request that a later one matches. False may be wrong. A `*` in the hosts
// of the later rule counts as a character that only a `*` matches.
func (a *accessRule) covers(later *accessRule) bool {
	equal := func(a, b string) bool { return a == b }
	return a.comparable() && coversAll(a.Hosts, later.Hosts, descriptors.Match) &&
		coversAll(a.Methods, later.Methods, equal) && a.path.covers(&later.path) &&
		coversAll(a.Networks, later.Networks, equal) && (len(a.Networks) == 0 || a.TrustedHops == later.TrustedHops)
}

// coversAll reports whether one of the earlier texts matches each of the later ones. An empty list matches everything.
func coversAll(earlier, later []string, match func(pattern, text string) bool) bool {
	uncovered := func(text string) bool {
		return !slices.ContainsFunc(earlier, func(pattern string) bool { return match(pattern, text) })
	}
	return len(earlier) == 0 || len(later) > 0 && !slices.ContainsFunc(later, uncovered)
}

// covers reports whether this pattern matches every path that a later one matches. False may be wrong.
func (p *pathPattern) covers(later *pathPattern) bool {
	if p.key == "" {
		return true
	}
	return later.key != "" && (later.key != "prefix" || p.key == "prefix") && p.match(later.pattern)
}
