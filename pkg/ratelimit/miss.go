package ratelimit

import (
	"slices"
	"strconv"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
)

// ClientValues sets whether a text may repeat values of entries. Clients choose values; operators choose keys.
type ClientValues bool

// The values of ClientValues.
const (
	HideValues ClientValues = false
	ShowValues ClientValues = true
)

const (
	// maxListed is how many words of the rules a text lists.
	maxListed = 5
	// maxSearched bounds the nodes that are searched for a rule that would have matched at another place.
	maxSearched = 10_000
)

// Miss returns in words why no rule matches a descriptor: "no rule for `databas`; did you mean `database`?". It returns
// "" if a rule matches. A descriptor that brings its limit needs no rule, so Miss has no meaning for it.
func (r *Rules) Miss(domain string, entries []descriptors.Entry, show ClientValues) string {
	root := r.domains[domain]
	if root == nil {
		return "no rules for the domain " + suggest.Quoted(domain) + nearest(domain, r.Domains())
	}
	last, matched := root.Walk(entries)
	m := miss{entries: entries, matched: matched, show: show, place: &last.Value}
	switch {
	case len(entries) == 0:
		return "the descriptor has no entries"
	case len(root.Value.node.Descriptors) == 0:
		return "the domain " + suggest.Quoted(domain) + " has no rules"
	}
	if rule, _ := find(root, entries); rule != nil {
		return ""
	}
	if text := r.missOfHold(domain, root, entries, show); text != "" {
		return text
	}
	budget, fixed := maxSearched, make([]PossibleEntry, len(entries))
	for i, e := range entries {
		fixed[i].Entry = e
	}
	if path := reaches(root.Value.node.Descriptors, fixed, (*Node).hasLimits, &budget); path != nil {
		return m.passedBy(root, path)
	}
	if matched == len(entries) {
		return m.tooShort()
	}
	return m.unmatched()
}

// missOfHold explains a descriptor with an entry that asks for a hold. It returns "" for one without, and if the entry
// makes no difference.
func (r *Rules) missOfHold(
	domain string, root *descriptors.Tree[position], entries []descriptors.Entry, show ClientValues,
) string {
	at := slices.IndexFunc(entries, func(e descriptors.Entry) bool { return descriptors.OfHold(e.Key) })
	if at < 0 {
		return ""
	}
	key := suggest.Quoted(entries[at].Key)
	switch {
	case at < len(entries)-1:
		return key + " is not the last entry: it asks for a hold only there"
	case at == 0:
		return "no entry precedes " + key
	}
	rule, _ := find(root, entries[:at])
	if rule == nil {
		return r.Miss(domain, entries[:at], show)
	}
	return "the rule " + rule.Node.describe() + " has no `hold`, so " + key +
		" is matched like any other entry, and no rule matches it"
}

// Matched returns the places of the rules that a descriptor matches, one for each entry up to the first that nothing
// matches: "`tenant` (shop.yaml:4)". That of a network ends with its prefix: ", 10.0.0.0/8".
func (r *Rules) Matched(domain string, entries []descriptors.Entry) (places []string) {
	root := r.domains[domain]
	if root == nil {
		return nil
	}
	for i := range entries {
		last, matched := root.Walk(entries[:i+1])
		if matched <= i {
			break
		}
		place := last.Value.node.describe()
		if p, ok := r.networks.Lists.Longest(last.Value.node.Network, entries[i].Value); ok {
			place += ", " + p.String()
		}
		places = append(places, place)
	}
	return places
}

// PossibleEntry is an entry that a configuration of Envoy makes of requests.
type PossibleEntry struct {
	descriptors.Entry
	// AnyValue means that the request determines the value. Optional means that some requests make no such entry.
	AnyValue, Optional bool
}

// MissOfAll returns in words why no rule can match a descriptor of these entries in any request, "" if one can.
func (r *Rules) MissOfAll(domain string, possible []PossibleEntry) string {
	root := r.domains[domain]
	if root == nil {
		return r.Miss(domain, nil, ShowValues)
	}
	nodes, budget := root.Value.node.Descriptors, maxSearched
	if reaches(nodes, possible, (*Node).hasLimits, &budget) != nil || budget < 0 {
		return ""
	}
	var entries []descriptors.Entry // of a descriptor that goes on for as long as rules match
	for i := range possible {
		entry, below := possible[i].Entry, []Node(nil)
		if at := slices.IndexFunc(nodes, func(n Node) bool { return possible[i].matches(&n) }); at >= 0 {
			below = nodes[at].Descriptors
			if possible[i].AnyValue {
				entry.Value = nodes[at].Value
				if prefixes := r.networks.Lists[nodes[at].Network]; len(prefixes) > 0 {
					entry.Value = prefixes[0].String()
				}
			}
		}
		entries, nodes = append(entries, entry), below
	}
	return r.Miss(domain, entries, ShowValues)
}

// ChargesDenials returns the name and the position of a rule that a descriptor of these entries can match, and that has
// a limit without count_denied. Such a limit charges a denied hit that states its cost. It returns "" for none.
func (r *Rules) ChargesDenials(domain string, possible []PossibleEntry) string {
	root, budget := r.domains[domain], maxSearched
	if root == nil {
		return ""
	}
	lacks := func(l Limit) bool { return l.CountDenied == nil && !l.Unlimited }
	charges := func(n *Node) bool { return slices.ContainsFunc(n.AllLimits(), lacks) }
	if path := reaches(root.Value.node.Descriptors, possible, charges, &budget); path != nil {
		return path[len(path)-1].describe()
	}
	return ""
}

// Holds returns the terms of a limit with holds that a descriptor of these entries can reach, nil for none, and whether
// its algorithm is Concurrency.
func (r *Rules) Holds(domain string, possible []PossibleEntry) (terms *HoldTerms, concurrency bool) {
	root, budget := r.domains[domain], maxSearched
	if root == nil {
		return nil, false
	}
	holds := func(n *Node) bool {
		return slices.ContainsFunc(n.AllLimits(), func(l Limit) bool { return l.Hold != nil })
	}
	path := reaches(root.Value.node.Descriptors, possible, holds, &budget)
	if path == nil {
		return nil, false
	}
	for _, l := range path[len(path)-1].AllLimits() {
		if l.Hold != nil && (terms == nil || l.Hold.TTL < terms.TTL) {
			terms = l.Hold
		}
		concurrency = concurrency || l.Algorithm.Windowless()
	}
	return terms, concurrency
}

func (p *PossibleEntry) matches(n *Node) bool {
	return descriptors.Match(n.Key, p.Key) &&
		(p.AnyValue || n.Network == "" && (n.Value == "" || descriptors.Match(n.Value, p.Value)))
}

// reaches returns the nodes that lead to one below nodes at which some of the possible descriptors end, of those that
// wanted accepts. It returns nil for none. The budget bounds the search.
func reaches(nodes []Node, possible []PossibleEntry, wanted func(*Node) bool, budget *int) []*Node {
	if len(possible) == 0 {
		return nil
	}
	for i := range nodes {
		n := &nodes[i]
		if *budget--; *budget < 0 {
			return nil
		}
		if !possible[0].matches(n) {
			continue
		}
		needed := func(p PossibleEntry) bool { return !p.Optional }
		if wanted(n) && !slices.ContainsFunc(possible[1:], needed) {
			return []*Node{n}
		}
		if below := reaches(n.Descriptors, possible[1:], wanted, budget); below != nil {
			return append([]*Node{n}, below...)
		}
	}
	if !possible[0].Optional {
		return nil
	}
	return reaches(nodes, possible[1:], wanted, budget)
}

// miss is the end of a walk at which no rule applies.
type miss struct {
	entries []descriptors.Entry
	matched int
	show    ClientValues
	place   *position // the last one that matched
}

// tooShort explains a descriptor that ends at a place without a limit.
func (m miss) tooShort() string {
	budget := maxSearched
	path := firstLimit(m.place.node.Descriptors, &budget)
	if path == nil {
		return m.place.node.describe() + " has no limit, so its descriptors pass"
	}
	return m.lengths(path[len(path)-1], m.matched+len(path))
}

// unmatched explains a descriptor with an entry that nothing matches.
func (m miss) unmatched() string {
	e, below := m.entries[m.matched], ""
	if m.matched > 0 {
		below = " below " + m.place.node.describe()
	}
	if len(m.place.node.Descriptors) == 0 {
		if m.place.rule == nil {
			return m.place.node.describe() + " has no limit, and no rule is below it"
		}
		return m.lengths(m.place.node, m.matched)
	}
	var values, keys []string // each key once
	for _, n := range m.place.node.Descriptors {
		if descriptors.Match(n.Key, e.Key) {
			values = append(values, n.Value+n.Network)
		}
		if len(keys) < maxHinted && !slices.Contains(keys, n.Key) {
			keys = append(keys, n.Key)
		}
	}
	switch {
	case values != nil && m.show == ShowValues:
		return "no rule for " + suggest.Quoted(e.Key) + " = " + suggest.Quoted(e.Value) + below + nearest(e.Value, values)
	case values != nil:
		return "no rule for this value of " + suggest.Quoted(e.Key) + below + listed(values)
	}
	text := "no rule for " + suggest.Quoted(e.Key) + below
	for _, later := range m.entries[m.matched+1:] {
		if slices.Contains(keys, later.Key) && suggest.DidYouMean(e.Key, keys) == "" {
			return text + "; " + suggest.Quoted(later.Key) + " would match here: the order of entries counts"
		}
	}
	text += nearest(e.Key, keys)
	if m.place.rule != nil {
		text += "; " + m.lengths(m.place.node, m.matched)
	}
	return text
}

// lengths explains a descriptor that is longer or shorter than a rule.
func (m miss) lengths(rule *Node, entries int) string {
	noun := " entries"
	if entries == 1 {
		noun = " entry"
	}
	return "the rule " + rule.describe() + " matches " + strconv.Itoa(entries) + noun + ", the descriptor has " +
		strconv.Itoa(len(m.entries))
}

// passedBy explains a descriptor that a rule would match if the walk had not taken another way. path leads to the rule.
func (m miss) passedBy(root *descriptors.Tree[position], path []*Node) string {
	text := "the rule " + path[len(path)-1].describe() + " is not reached"
	for i, n := range path {
		taken, _ := root.Walk(m.entries[:i+1])
		if other := taken.Value.node; other.Name() != n.Name() {
			return text + ": " + other.describe() + " precedes " + n.describe() + ", and matching does not go back"
		}
	}
	return text
}

// firstLimit returns the nodes that lead to the first limit, nil if the first nodes that the budget allows have none.
func firstLimit(nodes []Node, budget *int) []*Node {
	for i := range nodes {
		n := &nodes[i]
		if *budget--; *budget < 0 {
			return nil
		}
		if n.hasLimits() {
			return []*Node{n}
		}
		if below := firstLimit(n.Descriptors, budget); below != nil {
			return append([]*Node{n}, below...)
		}
	}
	return nil
}

// describe returns the name and the position of the node: `database_users` (shop.yaml:12).
func (n *Node) describe() string {
	text := suggest.Quoted(n.Name())
	if n.Position != "" {
		text += " (" + n.Position + ")"
	}
	return text
}

// nearest continues a text with the closest word, or with the words that there are.
func nearest(written string, words []string) string {
	if hint := suggest.DidYouMean(written, words[:min(len(words), maxHinted)]); hint != "" {
		return "; " + hint
	}
	return listed(words)
}

// listed continues a text with words of the rules.
func listed(words []string) string {
	if len(words) == 0 {
		return ""
	}
	text := "; the rules have " + suggest.List(words[:min(len(words), maxListed)], ", ")
	if more := len(words) - maxListed; more > 0 {
		text += " and " + strconv.Itoa(more) + " more"
	}
	return text
}
