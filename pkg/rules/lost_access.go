package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// lostAccess names the access rules that no rule replaces now. A rule replaces another one if it matches the same
// requests and requires no less. It also names a rule if a less strict rule that was not before it is before it now,
// and both match some request: the first rule that matches decides.
func lostAccess(of string, before, now []authz.Access) (names []string) {
	same := map[string][]int{} // the indexes of the rules now, by what they match
	for i, rule := range now {
		same[matched(rule)] = append(same[matched(rule)], i)
	}
	since := make([]int, len(now)) // for each rule now, the index of the first earlier rule that it replaces
	for i := range since {
		since[i] = len(before)
	}
	for i, rule := range slices.Backward(before) {
		for _, j := range same[matched(rule)] {
			if asksNoLess(now[j], rule) {
				since[j] = i
			}
		}
	}
	for i, rule := range before {
		name := fmt.Sprintf("access rule %s%s (%s)", accessText(rule), of, rule.Position)
		all := same[matched(rule)]
		replacement := slices.IndexFunc(all, func(j int) bool { return asksNoLess(now[j], rule) })
		if replacement < 0 {
			names = append(names, name)
			continue
		}
		for j, other := range now[:all[replacement]] {
			if since[j] > i && !asksNoLess(other, rule) && meet(other, rule) {
				names = append(names, fmt.Sprintf("%s: %s (%s) is before it", name, accessText(other), other.Position))
				break
			}
		}
	}
	return names
}

// matched returns the same text for access rules that match the same requests.
func matched(rule authz.Access) string {
	key, path := rule.Path.Form()
	return fmt.Sprintf("%q %q %q %q", rule.Hosts, rule.Methods, key, path)
}

// asksNoLess reports whether an access rule requires everything that another one requires.
func asksNoLess(rule, other authz.Access) bool {
	switch rule.Require {
	case authz.Denied:
		return true
	case authz.Open:
		return other.Require == authz.Open
	}
	lacks := func(scope string) bool { return !slices.Contains(rule.Scopes, scope) }
	return other.Require != authz.Denied && !slices.ContainsFunc(other.Scopes, lacks)
}

// meet reports whether two access rules may match the same request.
func meet(a, b authz.Access) bool {
	return anyMeet(a.Hosts, b.Hosts, hostsMeet) && anyMeet(a.Methods, b.Methods, strings.EqualFold) &&
		pathsMeet(a.Path, b.Path)
}

// anyMeet reports whether a pattern of a and a pattern of b meet. An empty list matches everything.
func anyMeet(a, b []string, meet func(a, b string) bool) bool {
	return len(a) == 0 || len(b) == 0 || slices.ContainsFunc(a, func(x string) bool {
		return slices.ContainsFunc(b, func(y string) bool { return meet(x, y) })
	})
}

func hostsMeet(a, b string) bool {
	return descriptors.Match(a, b) || descriptors.Match(b, a) || strings.Contains(a, "*") && strings.Contains(b, "*")
}

// pathsMeet compares paths up to their first variable and without their last slash, because a restricting rule matches
// its path with and without that slash.
func pathsMeet(a, b *authz.PathPattern) bool {
	fixed := func(p *authz.PathPattern) string {
		_, text := p.Form()
		path, _, _ := strings.Cut(text, "{")
		return strings.TrimSuffix(path, "/")
	}
	short, long := fixed(a), fixed(b)
	if len(short) > len(long) {
		short, long, a = long, short, b
	}
	rest, ok := strings.CutPrefix(long, short)
	key, _ := a.Form()
	return ok && (rest == "" || key != "exact" && rest[0] == '/')
}
