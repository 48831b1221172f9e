package ratelimit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// CheckOptions are the settings that Check depends on.
type CheckOptions struct {
	// DefaultAlgorithm is the algorithm of limits that name none. Default: sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// CalendarMonths is RulesOptions.CalendarMonths.
	CalendarMonths bool
	// MergeDomains lets several Domains have one name: their descriptors are merged (MERGE_DOMAIN_CONFIG).
	MergeDomains bool
	// Strict is Config.Strict.
	Strict bool
	// DefaultPolicy is RulesOptions.DefaultPolicy if a store is shared, else 0.
	DefaultPolicy StoreErrorPolicy
	// Networks is RulesOptions.Networks.
	Networks networks.Lists
	// Sent are the names of the headers of RESPONSE_HEADERS that answers have, in lower case.
	Sent []string
}

// Check returns the mistakes in domains, each domain by itself and all together. The mistakes of a domain have its
// index. Its running time is proportional to the size of the domains.
func Check(domains []Domain, o CheckOptions) [][]Mistake {
	checkers := make([]*checker, len(domains))
	named := map[string]*domainRules{} // by domain
	for i := range domains {
		d := &domains[i]
		standard := defaults{algorithm: o.DefaultAlgorithm, months: o.CalendarMonths}
		c := &checker{
			defaults: standard, strict: o.Strict, policy: o.DefaultPolicy, sent: o.Sent, networks: o.Networks,
			rules: &domainRules{
				position: cmp.Or(d.Position, Element("domains", i)), top: siblings{}, named: map[string]bool{},
			},
		}
		checkers[i] = c
		switch first := named[d.Name]; {
		case d.Name == "":
			c.At("domain").Fail("config file cannot have empty domain",
				"add `domain: <name>`, the domain of Envoy's rate limit filter")
		case first == nil:
			named[d.Name] = c.rules
		case o.MergeDomains:
			c.rules = first
		default:
			c.At("domain").Fail("duplicate domain "+suggest.Quoted(d.Name)+" in config file", "the first is at "+
				first.position+": put both into one file, or set MERGE_DOMAIN_CONFIG=true")
		}
		c.checkUTF8("domain", d.Name)
		c.nodes(d.Descriptors, level{at: "descriptors", parent: d.Name + ".", siblings: c.rules.top})
	}
	mistakes := make([][]Mistake, len(domains))
	for i, c := range checkers {
		if d := domains[i].Name; named[d] == c.rules {
			c.checkReplaces(d)
		}
		mistakes[i] = c.All()
	}
	return mistakes
}

// domainRules are the facts about all Domains of one name that their checks share.
type domainRules struct {
	position string // position of the first of these Domains
	top      siblings
	named    map[string]bool // the limits that have a name
}

// siblings are the nodes of one level and their positions. No two may have the same pattern.
type siblings map[pattern]string

// pattern is what a node matches.
type pattern struct {
	descriptors.Pattern
	network string
}

func (n *Node) pattern() pattern {
	return pattern{descriptors.Pattern{Key: n.Key, Value: n.Value}, n.Network}
}

// checker finds the mistakes of one Domain.
type checker struct {
	Mistakes
	defaults  defaults
	strict    bool
	policy    StoreErrorPolicy // CheckOptions.DefaultPolicy
	sent      []string         // CheckOptions.Sent
	networks  networks.Lists
	rules     *domainRules
	replacing []replacing
}

// replacing is the name of another limit in `replaces:`.
type replacing struct{ at, name string }

// checkUTF8 reports a text that no message to Envoy can hold.
func (c *checker) checkUTF8(at, text string) {
	if !utf8.ValidString(text) {
		c.At(at).Fail(suggest.Quoted(strings.ToValidUTF8(text, "\uFFFD")) + " is not UTF-8")
	}
}

// level is the place of a list of nodes.
type level struct {
	at       string                // its path
	parent   string                // the name of the node above, with the last dot
	way      []descriptors.Pattern // of the entries that lead to it
	siblings siblings
}

func (c *checker) nodes(list []Node, l level) {
	for i := range list {
		n, at := &list[i], Element(l.at, i)
		name := l.parent + n.Name()
		c.checkPattern(n, at, name, l.siblings)
		way := append(l.way[:len(l.way):len(l.way)], n.pattern().Pattern)
		c.checkLimits(n, at, way)
		c.checkModes(n, at, name)
		if n.Key != "" && n.RateLimit == nil && n.Limits == nil && len(n.Descriptors) == 0 {
			c.At(at, at+".rate_limit", at+".limits", at+".descriptors").Lacking().Warn(
				"this descriptor limits nothing: it has no limit and no `descriptors`",
				"add `rate_limit`; if they are to pass, write `rate_limit: {unlimited: true}`")
		}
		if !plain(n.Metadata) {
			c.At(at+".metadata").Fail("`metadata` has a value that an answer to Envoy cannot hold",
				"want texts, numbers, true, false, lists and maps")
		}
		c.nodes(n.Descriptors, level{at: at + ".descriptors", parent: name + ".", way: way, siblings: siblings{}})
	}
}

// checkPattern reports a node without a key, and one with the same pattern as another node of its level.
func (c *checker) checkPattern(n *Node, at, name string, level siblings) {
	c.checkUTF8(at+".key", n.Key)
	c.checkUTF8(at+".value", n.Value)
	if n.Key == "" {
		c.At(at, at+".key").Fail("descriptor has empty key", "add `key: <the key of an entry of Envoy's descriptor>`")
		return
	}
	if descriptors.OfHold(n.Key) {
		c.At(at+".key").Warn("the key "+suggest.Quoted(n.Key)+" is that of an entry that asks for a hold",
			"it needs no descriptor of its own: below a limit with `hold`, this one never matches")
	}
	c.checkNetwork(n, at)
	p := n.pattern()
	if first, known := level[p]; known {
		c.At(at, at+".key", at+".value", at+".network").Fail("duplicate descriptor composite key "+suggest.Quoted(name),
			"the first is at "+first+": delete one of them, or join what is below them")
		return
	}
	level[p] = cmp.Or(n.Position, at)
}

// checkNetwork reports a network that does not exist, or that has no meaning in its node.
func (c *checker) checkNetwork(n *Node, at string) {
	switch {
	case n.Network == "":
		return
	case n.Value != "":
		c.Key(at+".network", at+".value").Fail("`network` beside `value`",
			"an address in a network has no fixed value: delete one of them")
	case strings.Contains(n.Key, "*"):
		c.Key(at+".network", at+".key").Fail("`network` beside a `key` with a `*`", "write one descriptor for each key")
	}
	if m := c.networks.Unknown(n.Network); m != nil {
		c.At(at+".network").Fail(m.Message, m.Hints...)
	}
}

// checkModes reports keys beside a limit that have no meaning there.
func (c *checker) checkModes(n *Node, at, name string) {
	if n.ShareThreshold && !strings.Contains(n.Key+n.Value, "*") && n.Network == "" {
		c.Key(at+".share_threshold", at+".key", at+".value", at+".network").Fail(
			"share_threshold can only be used with wildcard values (containing '*'), but found "+suggest.Quoted(name),
			"put a `*` into `value`, write `network`, or delete `share_threshold`")
	}
	if n.RateLimit != nil || n.Limits != nil {
		return
	}
	for _, mode := range []struct {
		name string
		set  bool
	}{{"shadow_mode", n.Shadow}, {"quota_mode", n.Quota}, {"detailed_metric", n.DetailedMetric}} {
		if mode.set {
			c.Key(at+"."+mode.name, at+".rate_limit", at+".limits").Warn(
				suggest.Quoted(mode.name)+" has no effect on a descriptor without a rate limit",
				"descriptors below it do not inherit it: set it beside each `rate_limit`")
		}
	}
}

// plain reports whether Node.Metadata may hold a value.
func plain(v any) bool {
	switch v := v.(type) {
	case nil, bool, int64, uint64, float64:
		return true
	case string:
		return utf8.ValidString(v)
	case []any:
		return !slices.ContainsFunc(v, func(v any) bool { return !plain(v) })
	case map[string]any:
		for k, v := range v {
			if !utf8.ValidString(k) || !plain(v) {
				return false
			}
		}
		return true
	}
	return false
}

// checkLimits reports mistakes in the limits of a node. way has the patterns of the entries that lead to it.
func (c *checker) checkLimits(n *Node, at string, way []descriptors.Pattern) {
	if n.RateLimit != nil {
		c.remember(n.RateLimit, at+".rate_limit")
	}
	for i := range n.Limits {
		c.remember(&n.Limits[i], Element(at+".limits", i))
	}
	switch {
	case n.RateLimit != nil && n.Limits != nil:
		c.Key(at+".limits").Fail("`limits` beside `rate_limit`",
			"move what is in `rate_limit` into `limits`, as an element of its own")
		return
	case n.RateLimit != nil && n.RateLimit.Unlimited:
		c.checkUnlimited(n.RateLimit, at+".rate_limit")
	case n.RateLimit != nil:
		if n.RateLimit.Shadow {
			c.Key(at+".rate_limit.shadow_mode").Fail("`shadow_mode` does not belong in a rate limit",
				"it belongs directly in a descriptor, an element of `descriptors:`")
		}
		c.checkLimit(n.RateLimit, at+".rate_limit", way)
		c.checkEnforce(n, n.RateLimit, at+".rate_limit", way)
	case n.Limits != nil && len(n.Limits) == 0:
		c.Key(at+".limits").Fail("`limits` is empty", "add an element, or delete `limits` to let all pass")
	}
	limited := 0
	for i := range n.Limits {
		at := Element(at+".limits", i)
		if n.Limits[i].Unlimited {
			c.Key(at+".unlimited").Fail("`unlimited` in `limits`",
				"other limits would hold all the same: write `rate_limit: {unlimited: true}` instead of `limits`")
			continue
		}
		if n.Limits[i].Shadow {
			c.checkShadow(n, &n.Limits[i], at)
		} else {
			limited++
		}
		c.checkLimit(&n.Limits[i], at, way)
		c.checkEnforce(n, &n.Limits[i], at, way)
	}
	if limited > 1 && n.Quota {
		c.Key(at+".quota_mode").Fail("`quota_mode` beside several `limits`",
			"quotas deny together only, so with two limits it is not clear when this one is over: "+
				"keep one limit, or delete `quota_mode`")
	}
	c.checkTogether(n.Limits, at+".limits")
	c.checkHolds(n.Limits, at+".limits")
}

// checkShadow reports what has no meaning in a limit in shadow.
func (c *checker) checkShadow(n *Node, l *Limit, at string) {
	if len(l.Replaces) > 0 {
		c.Key(at+".replaces", at+".shadow_mode").Fail("`replaces` beside `shadow_mode`",
			"a limit in shadow changes no decision: delete one of them")
	}
	if n.Shadow {
		c.Key(at+".shadow_mode").Warn("`shadow_mode` of a limit has no effect in a descriptor in shadow mode",
			"delete it here, or beside `limits`")
	}
}

// checkTogether reports limits of one node that would count in one bucket, or of which one always replaces the other.
func (c *checker) checkTogether(limits []Limit, at string) {
	type counted struct {
		algorithm bucket.Algorithm
		window    int64
		calendar  *bucket.Calendar
		shadow    bool // it has buckets of its own
	}
	first, named := map[counted]int{}, map[string]bool{}
	for i := range limits {
		l := &limits[i]
		named[l.Name] = true
		b, err := l.spec(c.defaults).ofRule()
		if l.Unlimited || err != nil {
			continue
		}
		same := counted{b.Algorithm, b.Window, b.Calendar, l.Shadow || l.Enforce != nil}
		j, known := first[same]
		if !known {
			first[same] = i
			continue
		}
		at, other := Element(at, i), Element(at, j)
		kind := b.Algorithm.String()
		if !b.Algorithm.Windowless() {
			kind += " over " + suggest.Counted(int(max(l.Multiplier, 1)), l.Unit.String())
		}
		c.At(at, append(specPaths(at), specPaths(other)...)...).Fail(
			"two limits of one descriptor share a bucket: both are "+kind,
			"the other is at "+cmp.Or(limits[j].Position, other)+
				": only the smaller would count; delete the larger, or change its algorithm or window")
	}
	for i := range limits {
		for k, other := range limits[i].Replaces {
			if other.Name != "" && other.Name != limits[i].Name && named[other.Name] {
				c.At(Element(Element(at, i)+".replaces", k)+".name").Fail(
					"replaces should not contain name of same descriptor: "+suggest.Quoted(other.Name),
					"both limits match the same requests, so that one would never hold")
			}
		}
	}
}

// remember records the name of a limit and the names that it replaces. It reports names that no limit can replace.
func (c *checker) remember(l *Limit, at string) {
	if l.Name != "" {
		c.rules.named[l.Name] = true
	}
	for i, other := range l.Replaces {
		at := Element(at+".replaces", i)
		switch other.Name {
		case "":
			c.At(at, at+".name").Fail("should not have an empty replaces entry", "write `- name: <the name of another limit>`")
		case l.Name:
			c.At(at+".name").Fail("replaces should not contain name of same descriptor: "+suggest.Quoted(other.Name),
				"a limit cannot replace itself: delete the element")
		default:
			c.replacing = append(c.replacing, replacing{at: at + ".name", name: other.Name})
		}
	}
}

// maxHinted is the number of unknown names that are compared with all known ones for a hint.
const maxHinted = 100

// checkReplaces warns of limits that replace a name which no limit of the domain has, in any Domain of this name.
func (c *checker) checkReplaces(domain string) {
	names := slices.Sorted(maps.Keys(c.rules.named))
	unknown := 0
	for _, r := range c.replacing {
		if c.rules.named[r.name] {
			continue
		}
		hint := ""
		if unknown++; unknown <= maxHinted {
			hint = suggest.DidYouMean(r.name, names)
		}
		c.At(r.at).Warn("no limit of domain "+suggest.Quoted(domain)+" is named "+suggest.Quoted(r.name)+
			": there is nothing to replace", hint)
	}
}
