package ratelimit

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rules are all rules in force. They are immutable, so a request sees one set of rules from beginning to end.
type Rules struct {
	domains map[string]*descriptors.Tree[*Rule]
	order   []*Rule
	options RulesOptions
	named   counterSet
}

// RulesOptions are the settings that give rules their meaning.
type RulesOptions struct {
	// KeyPrefix begins every bucket key (CACHE_KEY_PREFIX).
	KeyPrefix string
	// DefaultAlgorithm is that of overrides, which cannot name one. Default: sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// DefaultPolicy is the store error policy of overrides. Default: Local.
	DefaultPolicy StoreErrorPolicy
	// Wildcards says which of several matching wildcards wins.
	Wildcards descriptors.WildcardOrder
}

// Rule is a node of a rule file that descriptors can end at, compiled.
type Rule struct {
	Node
	// Domain is the one it belongs to.
	Domain string
	// Name is the path of keys and values, "key_value.key", as in the statistics of envoyproxy/ratelimit.
	Name string
	// Limits shadows Node.Limits.
	Limits []RuleLimit
	// Counters count its decisions; they live on when rules are loaded again.
	Counters *Counters

	path        []Node
	dynamicName bool // detailed_metric or value_to_metric
	// buckets are the entries of a request that tell the buckets of the rule apart.
	buckets []variable
}

// RuleLimit is a limit and what its buckets are called.
type RuleLimit struct {
	Limit
	// Policy is the name in RateLimit headers, of letters, digits and `_.-` only: the limit's own name, else the rule's.
	Policy string

	identity string // what all bucket keys of the limit begin with
	rule     uint64 // for bucket.Take.Rule
	hashTag  int    // index of the entry whose value is the Redis Cluster hash tag, −1 for none
	own      *ownLimits
}

// variable is an entry whose key or value is not fixed by the rule's path.
type variable struct {
	entry      int
	key, value bool
}

// NewRules compiles domains that a rule source has checked. Domains of the same name are put together.
func NewRules(domains []Domain, o RulesOptions) *Rules {
	if o.DefaultAlgorithm == 0 {
		o.DefaultAlgorithm = bucket.SlidingWindow
	}
	if o.DefaultPolicy == 0 {
		o.DefaultPolicy = Local
	}
	r := &Rules{domains: make(map[string]*descriptors.Tree[*Rule]), options: o}
	for _, d := range domains {
		tree := r.domains[d.Name]
		if tree == nil {
			tree = new(descriptors.Tree[*Rule])
			r.domains[d.Name] = tree
		}
		r.compile(tree, d.Name, nil, d.Descriptors)
	}
	return r
}

func (r *Rules) compile(parent *descriptors.Tree[*Rule], domain string, above []Node, nodes []Node) {
	for _, n := range nodes {
		tree := parent.Add(descriptors.Pattern{Key: n.Key, Value: n.Value}, r.options.Wildcards)
		path := append(above[:len(above):len(above)], n)
		if len(n.Limits) > 0 {
			tree.Value = r.newRule(domain, path)
			r.order = append(r.order, tree.Value)
		}
		r.compile(tree, domain, path, n.Descriptors)
	}
}

func (r *Rules) newRule(domain string, path []Node) *Rule {
	rule := &Rule{
		Node: path[len(path)-1], Domain: domain, Name: pathName(path),
		path: path, dynamicName: hasDynamicName(path),
	}
	rule.Counters = r.named.fixed(domain, rule.Name)
	for i, n := range path {
		p := descriptors.Pattern{Key: n.Key, Value: n.Value}
		v := variable{entry: i, key: strings.Contains(n.Key, "*")}
		v.value = n.Value == "" || p.Wildcard() && !n.ShareThreshold
		if v.key || v.value {
			rule.buckets = append(rule.buckets, v)
		}
	}
	for _, l := range rule.Node.Limits {
		rl := RuleLimit{Limit: l, Policy: policyName(rule.Name, l, len(rule.Node.Limits) > 1), hashTag: -1, own: new(ownLimits)}
		for i, n := range path {
			if l.HashTag != "" && n.Key == l.HashTag {
				rl.hashTag = i
			}
		}
		id := identity(domain, path, l.Limit)
		rl.identity, rl.rule = string(id), hashOf(id)
		rule.Limits = append(rule.Limits, rl)
	}
	return rule
}

func pathName(path []Node) string {
	var b strings.Builder
	for i, n := range path {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(n.Key)
		if n.Value != "" {
			b.WriteByte('_')
			b.WriteString(n.Value)
		}
	}
	return b.String()
}

// policyName makes a name that fits an RFC 9651 string without quoting and Envoy's own headers, which do not quote at all.
func policyName(rule string, l Limit, several bool) string {
	name := l.Name
	if name == "" {
		name = rule
		if several {
			name += fmt.Sprintf("-%d-a-%d-%s", l.Requests, l.UnitMultiplier, l.Unit)
		}
	}
	return strings.Map(func(c rune) rune {
		if c < 0x80 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c)) {
			return c
		}
		return '_'
	}, name)
}

// identity is what tells the buckets of a limit from those of all others: domain, path, algorithm and window. The numbers and
// the name are not in it, so that changing them keeps the counts.
func identity(domain string, path []Node, l bucket.Limit) []byte {
	id := descriptors.AppendField(nil, domain)
	for _, n := range path {
		id = descriptors.AppendField(id, n.Key)
		if n.Value == "" {
			id = append(id, '*')
			continue
		}
		id = descriptors.AppendField(append(id, '='), n.Value)
	}
	id = appendAlgorithm(append(id, '/'), l)
	if len(id) > maxIdentity {
		return descriptors.AppendField([]byte{'h'}, string(id)) // its hash; other identities begin with a field
	}
	return append(id, ';')
}

// overridesOf begins the identity of each limit that a request of the domain brings. All of them are one rule to a store: their
// windows are the request's choice, so a rule for each window would let a flood of windows displace the buckets of other rules.
func overridesOf(domain string) []byte { return descriptors.AppendField([]byte{'o'}, domain) }

// overrideIdentity is the identity of a limit that the request brings: it belongs to the entries, not to a rule.
func overrideIdentity(domain string, l bucket.Limit) []byte {
	return append(appendAlgorithm(overridesOf(domain), l), ';')
}

func hashOf(id []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(id) // a hash never fails
	return h.Sum64()
}

// maxIdentity bounds what the rule adds to each of its keys; it is more than descriptors.AppendField leaves unhashed.
const maxIdentity = 96

func appendAlgorithm(key []byte, l bucket.Limit) []byte {
	return strconv.AppendInt(append(key, l.Algorithm.Letter()), l.Window, 10)
}

// keyVersion begins all keys after the configured prefix: an ACL can allow just them.
const keyVersion = "rl:"

// refusedMark is before the identity in the keys of a Query with Refused. No identity begins with it.
const refusedMark = 'r'

// key is the name of the bucket of this limit for these entries, which matched the rule. refused is that of the Query.
func (r *Rule) key(prefix string, l *RuleLimit, entries []descriptors.Entry, refused bool) string {
	var space [160]byte
	key := append(append(space[:0], prefix...), keyVersion...)
	if l.hashTag >= 0 {
		key = descriptors.AppendHashTag(key, entries[l.hashTag].Value)
	}
	key = appendIdentity(key, l, refused)
	for _, v := range r.buckets {
		if v.key {
			key = descriptors.AppendField(key, entries[v.entry].Key)
		}
		if v.value {
			key = descriptors.AppendField(key, entries[v.entry].Value)
		}
	}
	return string(key)
}

func appendIdentity(key []byte, l *RuleLimit, refused bool) []byte {
	if refused {
		key = append(key, refusedMark)
	}
	return append(key, l.identity...)
}

// overrideKey is the name of the bucket of a limit that the request brings. refused is that of the Query.
func overrideKey(prefix string, l *RuleLimit, entries []descriptors.Entry, refused bool) string {
	key := append([]byte(prefix), keyVersion...)
	key = appendIdentity(key, l, refused)
	for _, e := range entries {
		key = descriptors.AppendField(key, e.Key)
		key = descriptors.AppendField(key, e.Value)
	}
	return string(key)
}

// HasDomain reports whether there are rules for the domain.
func (r *Rules) HasDomain(domain string) bool { return r.domains[domain] != nil }

// Find returns the rule that the entries end at, nil when there is none.
func (r *Rules) Find(domain string, entries []descriptors.Entry) *Rule {
	tree := r.domains[domain]
	if tree == nil || len(entries) == 0 {
		return nil
	}
	if node := tree.Find(entries); node != nil {
		return node.Value
	}
	return nil
}

// All returns the rules in the order of their files. The slice must not be changed.
func (r *Rules) All() []*Rule { return r.order }
