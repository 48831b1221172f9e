package xds

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// CheckOverlay returns the problems of the overlay at a path: its mistakes, and those together with the rules of a
// dump, such as entries that match none. dump is the text of /rlconfig, and compared is the number of its rules in the
// domains of the overlay. A nil dump checks the overlay alone. CheckOverlay does not check whether the limits of a
// policy have rules, because the dump does not tell the keys of a rule from its values.
func CheckOverlay(path string, dump []byte, cfg *Config) (compared int, problems rules.Problems) {
	file := poll.NewOf(overlayKind().MaxSize, path).Load().Files[0]
	if file.Err != nil {
		p := strictyaml.Unread(file, overlayKind())
		p.Warning = false
		return 0, rules.Problems{*p}
	}
	root, doc := decodeOverlay(file, cfg)
	if dump == nil {
		return 0, doc.Problems()
	}
	resources := make([]*resource, len(root.Domains))
	domains := make([]ratelimit.Domain, len(root.Domains))
	received := resourcesOf(string(dump))
	for i, d := range root.Domains {
		resources[i] = &resource{label: "/rlconfig"}
		if resources[i].Descriptors = received.of(d.Domain); resources[i].Descriptors != nil {
			resources[i].Name = d.Domain
		}
		compared += len(resources[i].Descriptors)
	}
	root.merge(resources, doc)
	problems = doc.Problems()
	for i := range resources {
		domains[i] = resources[i].Domain
	}
	for i, mistakes := range ratelimit.Check(domains, cfg.Check) {
		for _, m := range mistakes {
			at := descriptorPath.FindString(m.Path)
			if resources[i].touched[at] == "" || strings.HasSuffix(m.Path, ".hash_tag") || strings.HasSuffix(m.Path, ".by") {
				continue // the dump does not tell the keys of a rule from its values
			}
			k := 0
			_, _ = fmt.Sscanf(at, "descriptors[%d]", &k)
			m.Path = fmt.Sprintf("%s.%s%s", domains[i].Name, domains[i].Descriptors[k].Key, strings.TrimPrefix(m.Path, at))
			p := resources[i].problem(m)
			p.Hints = append(p.Hints, "the overlay changes this rule at "+resources[i].touched[at])
			problems = append(problems, p)
		}
	}
	return compared, problems
}

// dumped is a line of /rlconfig: the domain and the rule, joined by a dot, and what of the limit comes from a server.
type dumped struct {
	name  string
	limit ratelimit.Limit
}

type dump []dumped

// resourcesOf reads a text of /rlconfig. It skips lines that are no limits.
func resourcesOf(text string) (d dump) {
	for line := range strings.Lines(text) {
		i := strings.LastIndex(line, ": unit=")
		if i < 0 {
			continue
		}
		unit, rest, _ := strings.Cut(strings.TrimSpace(line[i+len(": unit="):]), " ")
		one := dumped{name: line[:i]}
		_ = one.limit.Unit.UnmarshalText([]byte(strings.ToLower(unit))) // an unlimited rule has none
		for part := range strings.SplitSeq(rest, ", ") {
			switch key, value, _ := strings.Cut(part, "="); key {
			case "requests_per_unit":
				if n, err := strconv.ParseInt(value, 10, 64); err == nil {
					one.limit.Requests = &n
				}
			case "unlimited":
				one.limit.Unlimited = true
			case "name":
				one.limit.Name = value
			}
		}
		if one.limit.Unlimited || one.limit.Unit == descriptors.UnknownUnit {
			one.limit = ratelimit.Limit{Unlimited: true, Name: one.limit.Name}
		}
		d = append(d, one)
	}
	return d
}

// of returns a descriptor for each rule of a domain, with its name as the key. The overlay in use has added the limits
// of a rule after the first one.
func (d dump) of(domain string) (nodes []ratelimit.Node) {
	for _, one := range d {
		name, ok := strings.CutPrefix(one.name, domain+".")
		if !ok || slices.ContainsFunc(nodes, func(n ratelimit.Node) bool { return n.Key == name }) {
			continue
		}
		nodes = append(nodes, ratelimit.Node{Key: name, RateLimit: &one.limit})
	}
	return nodes
}
