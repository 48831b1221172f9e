package rulefile

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// change is a file in force and what it is now; now is nil when the file is gone.
type change struct{ before, now *File }

// changedInPlace returns the files in force that were written to since, or deleted: not those that another file has replaced.
func changedInPlace(inForce, s snapshot) (list []change) {
	if s.place != inForce.place {
		return nil // the whole directory was replaced, as a ConfigMap is
	}
	for i := range inForce.files {
		before := &inForce.files[i]
		at := slices.IndexFunc(s.files, func(f File) bool { return f.Name == before.Name })
		switch {
		case at < 0:
			list = append(list, change{before: before})
		case os.SameFile(before.info, s.files[at].info) && !bytes.Equal(before.Content, s.files[at].Content):
			list = append(list, change{before, &s.files[at]})
		}
	}
	return list
}

// cutOff reports the files of which only the beginning is left. White space at the end does not count.
func cutOff(changes []change) (problems Problems) {
	for _, c := range changes {
		if c.now == nil || !bytes.HasPrefix(c.before.Content, c.now.Content) {
			continue
		}
		missing := bytes.TrimSpace(c.before.Content[len(c.now.Content):])
		if len(missing) == 0 {
			continue
		}
		r := newReport(*c.now, ruleGrammar())
		r.fail(r.lastLine(), fmt.Sprintf("the file ends here, and the rules in force go on for %s: it was cut off, or it is still being written",
			counted(bytes.Count(missing, []byte("\n"))+1, "line")),
			"write the whole file again; a rename cannot be cut off: write ..new beside it, then `mv ..new "+filepath.Base(c.now.Name)+"`",
			fmt.Sprintf("to delete the lines on purpose, do the same, or send SIGHUP after the file has been unchanged for %s", QuietPeriod))
		problems = append(problems, r.sorted()...)
	}
	return problems
}

// maxLost is how many of the access rules and limits that are lost are named.
const maxLost = 20

// lost names what rules lack that others have: access rules, and limits where it is more than half of a domain's, or of those of its
// `limits` or `refused` in `authz`. It is empty when nothing suspicious is lacking.
func lost(before, now Rules) []string {
	names := allLost(before, now)
	if more := len(names) - maxLost; more > 0 {
		names = append(names[:maxLost:maxLost], fmt.Sprintf("and %d more", more))
	}
	return names
}

func allLost(before, now Rules) (names []string) {
	kept := map[string]int{} // the limits of a rule, by its full name
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
	if now == nil {
		return []string{fmt.Sprintf("all of `authz` of domain %s (%s)", quoted(domain), before.Position)}
	}
	for _, rule := range before.Access {
		if !slices.ContainsFunc(now.Access, func(other authz.Access) bool { return asStrict(other, rule) }) {
			names = append(names, fmt.Sprintf("access rule %s of domain %s (%s)", accessText(rule), quoted(domain), rule.Position))
		}
	}
	for _, list := range []struct {
		key         string
		before, now int
	}{{"limits", len(before.Limits), len(now.Limits)}, {"refused", len(before.Refused), len(now.Refused)}} {
		if 2*list.now < list.before {
			names = append(names, fmt.Sprintf("%d of %d `%s` in `authz` of domain %s", list.before-list.now, list.before, list.key, quoted(domain)))
		}
	}
	return names
}

// asStrict reports whether an access rule matches the same requests as another and asks for no less.
func asStrict(rule, other authz.Access) bool {
	if !slices.Equal(rule.Hosts, other.Hosts) || !slices.Equal(rule.Methods, other.Methods) || rule.Path != other.Path {
		return false
	}
	switch rule.Require {
	case authz.Denied:
		return true
	case authz.Open:
		return other.Require == authz.Open
	}
	lacks := func(scope string) bool { return !slices.Contains(rule.Scopes, scope) }
	return other.Require != authz.Denied && !slices.ContainsFunc(other.Scopes, lacks)
}

// accessText names an access rule by what it matches.
func accessText(rule authz.Access) string {
	var parts []string
	for _, part := range []struct{ name, value string }{
		{"hosts", strings.Join(rule.Hosts, ",")}, {"methods", strings.Join(rule.Methods, ",")},
		{"exact", rule.Path.Exact}, {"prefix", rule.Path.Prefix}, {"template", rule.Path.Template},
	} {
		if part.value != "" {
			parts = append(parts, part.name+"="+part.value)
		}
	}
	if len(parts) == 0 {
		return "for all requests"
	}
	return oneLine(strings.Join(parts, " "))
}

// eachLimit calls f with the full name of each limit's rule, and with what people call the limit.
func eachLimit(parent string, nodes []ratelimit.Node, f func(rule, name string)) {
	for _, n := range nodes {
		rule := fullName(parent, n.Key, n.Value)
		for _, l := range n.Limits {
			name := rule
			if l.Name != "" {
				name += " (" + l.Name + ")"
			}
			f(rule, oneLine(name))
		}
		eachLimit(rule+".", n.Descriptors, f)
	}
}
