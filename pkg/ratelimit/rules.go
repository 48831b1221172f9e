package ratelimit

import (
	"cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rules are all rules of one generation. They are immutable, so a request sees one set of rules from beginning to end.
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
	// DefaultAlgorithm is that of limits that name none, and of overrides, which cannot name one. Default:
	// sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// DefaultPolicy is the store error policy of limits that name none, and of overrides. Default: Local.
	DefaultPolicy StoreErrorPolicy
	// Wildcards says which of several matching wildcards wins.
	Wildcards descriptors.WildcardOrder
	// Before are the rules that these are to replace: the counters of rules that are in both go on. nil for none.
	Before *Rules
}

// NewRules compiles domains, and works out everything that does not depend on a request. Domains of the same name are
// put together. Only domains in which Check finds no error limit what they say; of others, a limit that cannot be
// counted denies every request.
func NewRules(domains []Domain, o RulesOptions) *Rules {
	o.DefaultAlgorithm = cmp.Or(o.DefaultAlgorithm, bucket.SlidingWindow)
	o.DefaultPolicy = cmp.Or(o.DefaultPolicy, Local)
	r := &Rules{domains: make(map[string]*descriptors.Tree[*Rule]), options: o}
	for _, d := range domains {
		tree := r.domains[d.Name]
		if tree == nil {
			tree = new(descriptors.Tree[*Rule])
			r.domains[d.Name] = tree
		}
		r.compile(tree, d.Name, nil, d.Descriptors)
	}
	r.options.Before = nil // not kept: each would keep all before it
	return r
}

func (r *Rules) compile(parent *descriptors.Tree[*Rule], domain string, above []Node, nodes []Node) {
	for _, n := range nodes {
		tree := parent.Add(descriptors.Pattern{Key: n.Key, Value: n.Value}, r.options.Wildcards)
		path := append(above[:len(above):len(above)], n)
		if n.RateLimit != nil || len(n.Limits) > 0 {
			tree.Value = r.newRule(domain, path)
			r.order = append(r.order, tree.Value)
		}
		r.compile(tree, domain, path, n.Descriptors)
	}
}

// All returns the rules in the order of their files. The slice must not be changed.
func (r *Rules) All() []*Rule { return r.order }
