package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Changes are the sorted names of what differs: rules as in /rlconfig, and policies, such as shop.authz.
type Changes struct{ Added, Removed, Changed []string }

// Compare returns how a set differs from the one before. Positions, texts without effect and the order do not matter.
func Compare(before, after Set) (c Changes) {
	old, current := partsOf(before), partsOf(after)
	for _, name := range slices.Sorted(maps.Keys(current)) {
		if was, had := old[name]; !had {
			c.Added = append(c.Added, name)
		} else if was != current[name] {
			c.Changed = append(c.Changed, name)
		}
		delete(old, name)
	}
	c.Removed = slices.Sorted(maps.Keys(old))
	return c
}

// partsOf returns the rules and the policies of a set by name: all that can change in them, as text.
func partsOf(s Set) map[string]string {
	parts := map[string]string{}
	var add func(name, above string, nodes []ratelimit.Node)
	add = func(name, above string, nodes []ratelimit.Node) {
		for _, n := range nodes {
			name, below, limits := oneLine(Mask(name+"."+n.Name())), n.Descriptors, n.AllLimits()
			n.Descriptors, n.RateLimit, n.Limits = nil, nil, nil
			own := above + textOf(n) // share_threshold, for example, is for the rules below, too
			if len(limits) > 0 || len(below) == 0 {
				parts[name] += own + textOf(limits)
			}
			add(name, own, below)
		}
	}
	for _, d := range s.Domains {
		add(d.Name, "", d.Descriptors)
	}
	for name, prefixes := range s.Networks {
		parts["networks."+oneLine(name)] = fmt.Sprint(prefixes)
	}
	for domain, policy := range s.Policies {
		parts[oneLine(domain)+".authz"] += textOf(policy)
	}
	return parts
}

// positions are those in a text of textOf. They change with each line that is added above.
var positions = regexp.MustCompile(`"Position":"(?:[^"\\]|\\.)*"`)

func textOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil { // for a number such as .nan in metadata
		return fmt.Sprint(v)
	}
	return positions.ReplaceAllString(string(text), "")
}
