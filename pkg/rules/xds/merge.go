package xds

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

// descriptorPath is the path of a descriptor at the beginning of the path of a value in it.
var descriptorPath = regexp.MustCompile(`^descriptors\[\d+\](\.descriptors\[\d+\])*`)

// merge adds the overlay to resources. It warns of entries that match no rule, because the rule may come later.
func (root *overlayRoot) merge(resources []*resource, doc *strictyaml.Document) {
	for i := range root.Domains {
		d := &root.Domains[i]
		if d.Domain == "" || len(d.Rules) == 0 {
			continue
		}
		m := merger{
			at: ratelimit.Element("domains", i), entries: d.Rules, used: make([]bool, len(d.Rules)),
			byRule: map[string][]int{}, byName: map[string][]int{},
		}
		for j, e := range d.Rules {
			if e.Rule != "" {
				m.byRule[e.Rule] = append(m.byRule[e.Rule], j)
			} else {
				m.byName[e.Name] = append(m.byName[e.Name], j)
			}
		}
		known := false
		var domains []string
		for _, res := range resources {
			domains = append(domains, res.Name)
			if res.Name == d.Domain {
				known = true
				m.resource = res
				m.nodes(res.Descriptors, "", "descriptors")
			}
		}
		m.checkUsed(d.Domain, known, domains)
		doc.Add("", m.mistakes.All()...)
	}
}

// merger adds the entries of an overlay to the rules of a domain.
type merger struct {
	at       string // the path of the domain in the overlay
	resource *resource
	entries  []overlayRule
	// byRule and byName are the indexes of entries by the rule that they name, or else by the name of its limit.
	byRule, byName map[string][]int
	used           []bool
	rules, limits  []string // the names that the server has
	mistakes       ratelimit.Mistakes
}

// entryAt returns the path of an entry.
func (m *merger) entryAt(i int) string { return ratelimit.Element(m.at+".rules", i) }

// nodes adds to nodes at a path. parent is the name of the rule above, with its last dot.
func (m *merger) nodes(nodes []ratelimit.Node, parent, at string) {
	for i := range nodes {
		n, path := &nodes[i], ratelimit.Element(at, i)
		name := parent + n.Name()
		limit := ""
		if n.RateLimit != nil {
			limit = n.RateLimit.Name
			m.rules, m.limits = append(m.rules, name), append(m.limits, limit)
		}
		var matches []int
		for _, j := range m.byRule[name] {
			if named := m.entries[j].Name; named == "" || named == limit {
				matches = append(matches, j)
			}
		}
		if limit != "" {
			matches = append(matches, m.byName[limit]...)
		}
		slices.Sort(matches) // a later entry wins over an earlier one
		for _, j := range matches {
			m.add(j, n, path)
		}
		m.nodes(n.Descriptors, name+".", path+".descriptors")
	}
}

// add adds an entry to a node.
func (m *merger) add(entry int, n *ratelimit.Node, path string) {
	e := m.entries[entry]
	m.used[entry] = true
	if m.resource.touched == nil {
		m.resource.touched = map[string]string{}
	}
	m.resource.touched[path] = e.Position
	for mode, given := range map[*bool]*bool{
		&n.Shadow: e.Shadow, &n.Quota: e.Quota, &n.DetailedMetric: e.DetailedMetric, &n.ValueToMetric: e.ValueToMetric,
		&n.ShareThreshold: e.ShareThreshold,
	} {
		if given != nil {
			*mode = *given
		}
	}
	if e.Metadata != nil {
		n.Metadata = e.Metadata
	}
	limit := n.RateLimit
	if limit == nil && len(n.Limits) > 0 {
		limit = &n.Limits[0] // that of the server: an earlier entry has added limits
	}
	switch {
	case e.RateLimit != nil && limit == nil:
		m.mistakes.Key(m.entryAt(entry)+".rate_limit").Fail("the rule has no rate limit of the xDS server",
			"`limits` adds limits to a rule")
	case e.RateLimit != nil:
		from, to := reflect.ValueOf(e.RateLimit).Elem(), reflect.ValueOf(limit).Elem()
		for _, f := range e.given {
			to.FieldByIndex(f.Index).Set(from.FieldByIndex(f.Index))
		}
	}
	if len(e.Limits) > 0 {
		all := n.AllLimits()
		n.RateLimit, n.Limits = nil, append(all[:len(all):len(all)], e.Limits...)
	}
}

// The bounds of the search for similar names, because the work grows with both.
const maxHinted, maxNamesHinted = 10, 10_000

// checkUsed warns of entries that no rule matches. domains are those of the server.
func (m *merger) checkUsed(domain string, known bool, domains []string) {
	if !known {
		m.mistakes.At(m.at+".domain").Warn("the xDS server has no domain "+suggest.Quoted(domain),
			suggest.DidYouMean(domain, domains[:min(len(domains), maxNamesHinted)]), "the overlay applies as soon as it has one")
		return
	}
	hinted := 0
	for j, used := range m.used {
		e, key, names := m.entries[j], ".rule", m.rules
		if e.Rule == "" {
			key, names = ".name", m.limits
		}
		if used || e.Rule+e.Name == "" {
			continue
		}
		hint := ""
		if hinted++; hinted <= maxHinted {
			hint = suggest.DidYouMean(cmp.Or(e.Rule, e.Name), names[:min(len(names), maxNamesHinted)])
		}
		m.mistakes.At(m.entryAt(j)+key).Warn("no rule of domain "+suggest.Quoted(domain)+" matches", hint,
			"/rlconfig shows the names of rules and limits; the overlay applies as soon as one matches")
	}
}

// addPolicies adds the policies of the overlay to a set, whether or not the server has their domains.
func (root *overlayRoot) addPolicies(set *rules.Set, o ratelimit.CheckOptions, doc *strictyaml.Document) {
	for i, d := range root.Domains {
		if d.Authz == nil || d.Domain == "" || set.Policies[d.Domain] != nil {
			continue
		}
		set.Policies[d.Domain] = d.Authz
		domain := &ratelimit.Domain{Name: d.Domain}
		if j := slices.IndexFunc(set.Domains, func(has ratelimit.Domain) bool { return has.Name == d.Domain }); j >= 0 {
			domain = &set.Domains[j]
		}
		doc.Add(ratelimit.Element("domains", i)+".authz", d.Authz.CheckDomain(domain, o)...)
	}
}
