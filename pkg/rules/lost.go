package rules

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// maxLost is how many lost access rules and limits are named.
const maxLost = 20

// Lost names the restrictions that now lacks and before has. It names every lost restriction of access. It names limits
// if more than half of a domain's limits, or of its `limits` or `refused` in `authz`, are lost.
func Lost(before, now Set) []string {
	names := allLost(before, now)
	if more := len(names) - maxLost; more > 0 {
		names = append(names[:maxLost:maxLost], fmt.Sprintf("and %d more", more))
	}
	return names
}

func allLost(before, now Set) (names []string) {
	kept := map[string]int{} // the number of limits of a rule, by its full name
	for _, d := range now.Domains {
		eachLimit(d.Name+".", d.Descriptors, func(rule, _ string) { kept[rule]++ })
	}
	for _, d := range before.Domains {
		all, gone := 0, []string(nil)
		eachLimit(d.Name+".", d.Descriptors, func(rule, name string) {
			all++
			if kept[rule]--; kept[rule] < 0 {
				gone = append(gone, "limit "+name)
			}
		})
		if 2*len(gone) > all {
			names = append(names, gone...)
		}
	}
	for _, domain := range slices.Sorted(maps.Keys(before.Policies)) {
		names = append(names, lostOfPolicy(domain, before.Policies[domain], now.Policies[domain])...)
	}
	return names
}

func lostOfPolicy(domain string, before, now *authz.Policy) (names []string) {
	of := " of domain " + suggest.Quoted(domain)
	lost := func(is bool, what string) {
		if is {
			names = append(names, fmt.Sprintf("%s%s (%s)", what, of, before.Position))
		}
	}
	if now == nil {
		lost(true, "all of `authz`")
		return names
	}
	before, now = before.WithDefaults(), now.WithDefaults()
	for _, c := range before.Credentials {
		same := func(other authz.Credential) bool {
			other.Position = c.Position // the position does not count
			return reflect.DeepEqual(c, other)
		}
		kind, _ := credentialText(c)
		lost(!slices.ContainsFunc(now.Credentials, same), "`"+kind+"` in `credentials`")
	}
	passed := before.Anonymous == authz.Allow || before.Absent.Pass
	lost(!passed && now.Anonymous == authz.Allow, "`anonymous: deny`")
	lost(!passed && now.Absent.Pass, "`absent: {pass: false}`")
	lost(before.Preflight == authz.Deny && now.Preflight == authz.Allow, "`preflight: deny`")
	lost(before.UnsafePaths == authz.Deny && now.UnsafePaths == authz.Allow, "`unsafe_paths: deny`")
	names = append(names, lostAccess(of, before.Access, now.Access)...)
	half := func(key string, before, now int) {
		if 2*now < before {
			names = append(names, fmt.Sprintf("%d of %d `%s` in `authz`%s", before-now, before, key, of))
		}
	}
	half("limits", len(before.Limits), len(now.Limits))
	half("refused", len(before.Refused), len(now.Refused))
	return names
}

// accessText names an access rule by the requests that it matches.
func accessText(rule authz.Access) string {
	var parts []string
	add := func(name, value string) {
		if value != "" {
			parts = append(parts, name+"="+value)
		}
	}
	add("hosts", strings.Join(rule.Hosts, ","))
	add("methods", strings.Join(rule.Methods, ","))
	add(rule.Path.Form())
	return cmp.Or(oneLine(strings.Join(parts, " ")), "for all requests")
}

// eachLimit calls f with the full name of each limit's rule, and with the name of the limit for people.
func eachLimit(parent string, nodes []ratelimit.Node, f func(rule, name string)) {
	for _, n := range nodes {
		rule := parent + n.Name()
		for _, l := range n.AllLimits() {
			name := rule
			if l.Name != "" {
				name += " (" + l.Name + ")"
			}
			f(rule, oneLine(name))
		}
		eachLimit(rule+".", n.Descriptors, f)
	}
}
