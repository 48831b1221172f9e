package rulefile

import (
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// The work of comparing rules of access with each other grows with the square: so many are compared, with so many hosts and
// methods each.
const (
	maxCompared = 500
	maxPatterns = 32
)

// checkReached warns of a rule of access that never holds, since one before it matches every request that it matches.
func (b builder) checkReached(a accessKeys, rule authz.Access, before []authz.Access) {
	if len(before) > maxCompared || !isComparable(rule) {
		return
	}
	for _, earlier := range before {
		if isComparable(earlier) && coversHosts(earlier.Hosts, rule.Hosts) && coversMethods(earlier.Methods, rule.Methods) && coversPath(earlier.Path, rule.Path) {
			b.warn(a.at, "this rule of access never holds: the one at "+earlier.Position+" matches all of its requests",
				"the first that matches holds: put this one before it, or delete it")
			return
		}
	}
}

func isComparable(a authz.Access) bool { return len(a.Hosts)+len(a.Methods) <= maxPatterns }

// coversHosts reports whether every host that one of the later patterns matches is matched by an earlier one. A `*` of a later
// pattern is a character that only a `*` matches.
func coversHosts(earlier, later []string) bool {
	if len(earlier) == 0 || len(later) == 0 {
		return len(earlier) == 0
	}
	return !slices.ContainsFunc(later, func(host string) bool {
		return !slices.ContainsFunc(earlier, func(pattern string) bool { return descriptors.Match(pattern, host) })
	})
}

func coversMethods(earlier, later []string) bool {
	if len(earlier) == 0 || len(later) == 0 {
		return len(earlier) == 0
	}
	return !slices.ContainsFunc(later, func(method string) bool { return !slices.Contains(earlier, method) })
}

// coversPath reports whether every path that the later pattern matches is matched by the earlier one. It may say no when it is so.
func coversPath(earlier, later authz.PathPattern) bool {
	switch {
	case earlier == authz.PathPattern{}:
		return true
	case earlier.Exact != "":
		return earlier.Exact == later.Exact || earlier.Exact == later.Template
	case earlier.Prefix != "":
		return coversBelow(earlier.Prefix, later)
	}
	return coversSegments(earlier.Template, later.Exact+later.Template)
}

// coversBelow reports whether all paths of a pattern begin with a prefix, which ends at a slash.
func coversBelow(prefix string, later authz.PathPattern) bool {
	path := later.Exact + later.Prefix + later.Template // only one is set
	fixed, _, isVariable := strings.Cut(path, "{")
	rest, ok := strings.CutPrefix(fixed, prefix)
	return ok && (strings.HasSuffix(prefix, "/") || rest == "" && !isVariable || strings.HasPrefix(rest, "/"))
}

// coversSegments reports whether a template matches an exact path, or all that another template matches.
func coversSegments(template, later string) bool {
	a, b := strings.Split(template, "/"), strings.Split(later, "/")
	return slices.EqualFunc(a, b, func(s, t string) bool {
		return s == t && s != "" || s == "" && t == "" || strings.HasPrefix(s, "{") && t != ""
	})
}
