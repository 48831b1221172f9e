package ratelimit

import (
	"cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rules are all rules of one generation. They are immutable: a request sees one set of rules from start to end.
type Rules struct {
	domains map[string]*descriptors.Tree[*Rule]
	order   []*Rule
	options RulesOptions
	named   counterSet
}

// RulesOptions are the settings that NewRules depends on.
type RulesOptions struct {
	// KeyPrefix begins every bucket key (CACHE_KEY_PREFIX).
	KeyPrefix string
	// DefaultAlgorithm is the algorithm of overrides and of limits that name none. Default: sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// DefaultPolicy is the store error policy of limits that name none, and of overrides. Default: Local.
	DefaultPolicy StoreErrorPolicy
	// Wildcards selects the wildcard that wins if several match.
	Wildcards descriptors.WildcardOrder
	// Before are the previous rules. The counters of rules that are in both sets go on. nil for none.
	Before *Rules
}

// NewRules compiles domains and precomputes everything that does not depend on a request. Domains of the same name are
// merged. The result is exact only for domains in which Check finds no error. In other domains, a limit that cannot be
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
	r.options.Before = nil // else each set would keep all sets before it
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

// All returns the rules in the order of their files. Callers must not change the slice.
func (r *Rules) All() []*Rule { return r.order }
