package ratelimit

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// CheckOptions are the settings that decide what makes sense.
type CheckOptions struct {
	// DefaultAlgorithm is that of limits that name none. Default: sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// MergeDomains lets several Domains have one name: their descriptors are put together (MERGE_DOMAIN_CONFIG).
	MergeDomains bool
}

// maxMistakes is how many errors, and how many warnings, of one Domain are returned.
const maxMistakes = 10_000

// Check returns everything that makes no sense in domains, each by itself and all together: the mistakes of a domain
// have its index. It takes time in proportion to the size of the domains.
func Check(domains []Domain, o CheckOptions) [][]Mistake {
	checkers := make([]*checker, len(domains))
	named := map[string]*domainRules{} // by domain
	for i := range domains {
		d := &domains[i]
		c := &checker{standard: o.DefaultAlgorithm, rules: newDomainRules(position(d.Position, element("domains", i)))}
		checkers[i] = c
		switch first := named[d.Name]; {
		case d.Name == "":
			c.fail(value("domain"), "config file cannot have empty domain",
				"add `domain: <name>`, the domain of Envoy's rate limit filter")
		case first == nil:
			named[d.Name] = c.rules
		case o.MergeDomains:
			c.rules = first
		default:
			c.fail(value("domain"), "duplicate domain "+suggest.Quoted(d.Name)+" in config file", "the first is at "+
				first.position+": put both into one file, or set MERGE_DOMAIN_CONFIG=true")
		}
		c.checkUTF8(value("domain"), d.Name)
		c.nodes(d.Descriptors, level{at: "descriptors", parent: d.Name + ".", siblings: c.rules.top})
	}
	mistakes := make([][]Mistake, len(domains))
	for i, c := range checkers {
		if d := domains[i].Name; named[d] == c.rules {
			c.checkReplaces(d)
		}
		mistakes[i] = c.mistakes
	}
	return mistakes
}

// domainRules are the rules of all Domains of one name, as far as they concern each other.
type domainRules struct {
	position string // of the first of these Domains
	top      siblings
	named    map[string]bool // the limits that have a name
}

func newDomainRules(position string) *domainRules {
	return &domainRules{position: position, top: siblings{}, named: map[string]bool{}}
}

// siblings are the nodes of one level, and where each stands. No two may be matched with the same.
type siblings map[descriptors.Pattern]string

// checker finds the mistakes of one Domain.
type checker struct {
	standard         bucket.Algorithm
	rules            *domainRules
	replacing        []replacing
	mistakes         []Mistake
	errors, warnings int
}

// replacing is a limit that another one names in `replaces:`.
type replacing struct{ at, name string }

// spot is the part of a Mistake that says where it is.
type spot struct {
	path  string
	onKey bool
	also  []string
}

// value is the value at a path. also are the paths of other values that the mistake follows from.
func value(path string, also ...string) spot { return spot{path: path, also: also} }

// key is the key at a path.
func key(path string, also ...string) spot { return spot{path: path, onKey: true, also: also} }

// fail adds a mistake because of which the rules cannot be used.
func (c *checker) fail(at spot, message string, hints ...string) {
	if c.errors++; c.errors <= maxMistakes {
		c.add(at, false, message, hints)
	}
}

// warn adds a mistake with which the rules can be used.
func (c *checker) warn(at spot, message string, hints ...string) {
	if c.warnings++; c.warnings <= maxMistakes {
		c.add(at, true, message, hints)
	}
}

func (c *checker) add(at spot, warning bool, message string, hints []string) {
	c.mistakes = append(c.mistakes, Mistake{
		Path: at.path, OnKey: at.onKey, Also: at.also, Warning: warning, Message: message, Hints: hints,
	})
}

// checkUTF8 reports a text that no message to Envoy can hold.
func (c *checker) checkUTF8(at spot, text string) {
	if !utf8.ValidString(text) {
		c.fail(at, suggest.Quoted(strings.ToValidUTF8(text, "\uFFFD"))+" is not UTF-8")
	}
}

// level is where a list of nodes stands.
type level struct {
	at       string // its path
	parent   string // the name of what is above, to the last dot
	keys     []string
	siblings siblings
}

func (c *checker) nodes(list []Node, l level) {
	for i := range list {
		n, at := &list[i], element(l.at, i)
		name := l.parent + n.Name()
		c.checkPattern(n, at, name, l.siblings)
		keys := append(l.keys[:len(l.keys):len(l.keys)], n.Key)
		c.checkLimits(n, at, keys)
		c.checkModes(n, at, name)
		if !plain(n.Metadata) {
			c.fail(value(at+".metadata"), "`metadata` has a value that an answer to Envoy cannot hold",
				"want texts, numbers, true, false, lists and maps")
		}
		c.nodes(n.Descriptors, level{at: at + ".descriptors", parent: name + ".", keys: keys, siblings: siblings{}})
	}
}

// element is the path of an element of a list.
func element(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// checkPattern reports a node that has no key, or that another one of its level has already.
func (c *checker) checkPattern(n *Node, at, name string, level siblings) {
	c.checkUTF8(value(at+".key"), n.Key)
	c.checkUTF8(value(at+".value"), n.Value)
	if n.Key == "" {
		c.fail(value(at, at+".key"), "descriptor has empty key",
			"add `key: <the key of an entry of Envoy's descriptor>`")
		return
	}
	p := descriptors.Pattern{Key: n.Key, Value: n.Value}
	if first, known := level[p]; known {
		c.fail(value(at, at+".key", at+".value"), "duplicate descriptor composite key "+suggest.Quoted(name),
			"the first is at "+first+": delete one of them, or join what is below them")
		return
	}
	level[p] = position(n.Position, at)
}

// position is where something stands: its path, if the source does not say.
func position(said, at string) string {
	if said == "" {
		return at
	}
	return said
}

// checkModes reports keys beside a limit that have no meaning there.
func (c *checker) checkModes(n *Node, at, name string) {
	if n.ShareThreshold && !strings.Contains(n.Key+n.Value, "*") {
		c.fail(key(at+".share_threshold", at+".key", at+".value"),
			"share_threshold can only be used with wildcard values (containing '*'), but found "+suggest.Quoted(name),
			"put a `*` into `value`, or delete `share_threshold`")
	}
	if n.RateLimit != nil || n.Limits != nil {
		return
	}
	for _, mode := range []struct {
		name string
		set  bool
	}{{"shadow_mode", n.Shadow}, {"quota_mode", n.Quota}, {"detailed_metric", n.DetailedMetric}} {
		if mode.set {
			c.warn(key(at+"."+mode.name, at+".rate_limit", at+".limits"),
				suggest.Quoted(mode.name)+" has no effect on a descriptor without a rate limit",
				"descriptors below it do not inherit it: set it beside each `rate_limit`")
		}
	}
}

// plain reports whether a value is of what Node.Metadata may hold.
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

// checkLimits reports what is wrong with the limits of a node, to which these keys of entries lead.
func (c *checker) checkLimits(n *Node, at string, keys []string) {
	if n.RateLimit != nil {
		c.remember(n.RateLimit, at+".rate_limit")
	}
	for i := range n.Limits {
		c.remember(&n.Limits[i], element(at+".limits", i))
	}
	switch {
	case n.RateLimit != nil && n.Limits != nil:
		c.fail(key(at+".limits"), "`limits` beside `rate_limit`",
			"move what is in `rate_limit` into `limits`, as an element of its own")
		return
	case n.RateLimit != nil && n.RateLimit.Unlimited:
		c.checkUnlimited(n.RateLimit, at+".rate_limit")
	case n.RateLimit != nil:
		c.checkLimit(n.RateLimit, at+".rate_limit", keys)
	case n.Limits != nil && len(n.Limits) == 0:
		c.fail(key(at+".limits"), "`limits` is empty", "add an element, or delete `limits` to let all pass")
	}
	limited := 0
	for i := range n.Limits {
		at := element(at+".limits", i)
		if n.Limits[i].Unlimited {
			c.fail(key(at+".unlimited"), "`unlimited` in `limits`",
				"other limits would hold all the same: write `rate_limit: {unlimited: true}` instead of `limits`")
			continue
		}
		limited++
		c.checkLimit(&n.Limits[i], at, keys)
	}
	if limited > 1 && n.Quota {
		c.fail(key(at+".quota_mode"), "`quota_mode` beside several `limits`",
			"quotas deny together only, so with two limits it is not clear when this one is over: "+
				"keep one limit, or delete `quota_mode`")
	}
	c.checkTogether(n.Limits, at+".limits")
}

// checkTogether reports limits of one node that would count in one bucket, or of which one always replaces the other.
func (c *checker) checkTogether(limits []Limit, at string) {
	type counted struct {
		algorithm bucket.Algorithm
		window    int64
	}
	first, named := map[counted]int{}, map[string]bool{}
	for i := range limits {
		l := &limits[i]
		named[l.Name] = true
		b, err := l.spec(c.standard).Bucket()
		if l.Unlimited || err != nil {
			continue
		}
		same := counted{b.Algorithm, b.Window}
		j, known := first[same]
		if !known {
			first[same] = i
			continue
		}
		at, other := element(at, i), element(at, j)
		c.fail(value(at, append(specPaths(at), specPaths(other)...)...),
			"two limits of one descriptor share a bucket: both are "+b.Algorithm.String()+" over "+l.windowName(),
			"the other is at "+position(limits[j].Position, other)+
				": only the smaller would count; delete the larger, or change its algorithm or window")
	}
	for i := range limits {
		for k, other := range limits[i].Replaces {
			if other.Name != "" && other.Name != limits[i].Name && named[other.Name] {
				c.fail(value(element(element(at, i)+".replaces", k)+".name"),
					"replaces should not contain name of same descriptor: "+suggest.Quoted(other.Name),
					"both limits match the same requests, so that one would never hold")
			}
		}
	}
}

// windowName is the window of a limit in words: "1 minute", "5 minutes".
func (l *Limit) windowName() string {
	if l.Multiplier <= 1 {
		return "1 " + l.Unit.String()
	}
	return strconv.FormatInt(l.Multiplier, 10) + " " + l.Unit.String() + "s"
}

// remember gathers the name of a limit and those that it replaces.
func (c *checker) remember(l *Limit, at string) {
	if l.Name != "" {
		c.rules.named[l.Name] = true
	}
	for i, other := range l.Replaces {
		if other.Name != "" {
			c.replacing = append(c.replacing, replacing{at: element(at+".replaces", i) + ".name", name: other.Name})
		}
	}
}

// maxHinted is how many of the names that no limit has are compared with all that there are.
const maxHinted = 100

// checkReplaces warns of limits that replace a name which no limit of the domain has, in whatever Domain of this name.
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
		c.warn(value(r.at), "no limit of domain "+suggest.Quoted(domain)+" is named "+suggest.Quoted(r.name)+
			": there is nothing to replace", hint)
	}
}
