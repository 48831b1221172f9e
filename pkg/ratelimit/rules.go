package ratelimit

import (
	"cmp"
	"maps"
	"slices"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rules are all rules of one generation. They are immutable: a request sees one set of rules from start to end.
type Rules struct {
	domains  map[string]*descriptors.Tree[position]
	networks *networks.Tables
	order    []*Rule
	options  RulesOptions
	counters counterSet
}

// position is one place in the tree of rules.
type position struct {
	rule *Rule // nil for a place without limits
	// node is what the place was compiled from, for Miss. The root has no key, and the nodes of all Domains of its name.
	node *Node
}

// RulesOptions are the settings that NewRules depends on.
type RulesOptions struct {
	// KeyPrefix begins every bucket key (CACHE_KEY_PREFIX).
	KeyPrefix string
	// DefaultAlgorithm is the algorithm of requests' limits and of limits that name none. Default: sliding_window.
	DefaultAlgorithm bucket.Algorithm
	// CalendarMonths lets each month limit without an algorithm begin with the month in UTC, also limits of requests
	// (USE_CALENDAR_MONTH_RATE_LIMIT).
	CalendarMonths bool
	// DefaultPolicy is the store error policy of limits that name none, and of requests' limits. Default: Local.
	DefaultPolicy StoreErrorPolicy
	// Status is the HTTP status of denials by limits that name none, and by requests' limits. 0, the default, means 429.
	Status int
	// Wildcards selects the wildcard that wins if several match.
	Wildcards descriptors.WildcardOrder
	// MetricValues is how many values of requests one rule counts by themselves (METRIC_VALUES_MAX). Default: 1000.
	MetricValues int
	// Networks are the lists that Node.Network names. Check reports names of no list, which match nothing.
	Networks networks.Lists
	// Before are the previous rules. The counters of rules that are in both sets go on; those of the other rules are kept
	// until the next change. nil for none.
	Before *Rules
}

// NewRules compiles domains and precomputes all that does not depend on a request. Domains of the same name are merged.
// The result is exact only if Check finds no error. Otherwise, a limit that cannot be counted denies every request.
func NewRules(domains []Domain, o RulesOptions) *Rules {
	o.DefaultAlgorithm = cmp.Or(o.DefaultAlgorithm, bucket.SlidingWindow)
	o.DefaultPolicy = cmp.Or(o.DefaultPolicy, Local)
	o.MetricValues = cmp.Or(o.MetricValues, 1000)
	r := &Rules{
		domains: make(map[string]*descriptors.Tree[position]), options: o, counters: newCounterSet(),
		networks: &networks.Tables{Lists: o.Networks},
	}
	var names []string
	for _, d := range domains {
		tree := r.domains[d.Name]
		if tree == nil {
			tree = &descriptors.Tree[position]{Value: position{node: new(Node)}}
			r.domains[d.Name], names = tree, append(names, d.Name)
		}
		all := &tree.Value.node.Descriptors
		if *all == nil {
			*all = slices.Clip(d.Descriptors) // not copied, unless several Domains have one name
		} else {
			*all = append(*all, d.Descriptors...)
		}
	}
	for _, name := range names {
		tree := r.domains[name]
		r.compile(tree, name, nil, tree.Value.node.Descriptors)
	}
	if o.Before != nil {
		r.counters.gone = o.Before.counters.without(&r.counters)
	}
	r.options.Before = nil // else each set would keep all sets before it
	return r
}

// defaults returns how limits are counted that do not determine it themselves.
func (o *RulesOptions) defaults() defaults {
	return defaults{algorithm: o.DefaultAlgorithm, months: o.CalendarMonths}
}

func (r *Rules) compile(parent *descriptors.Tree[position], domain string, above []*Node, nodes []Node) {
	inNetworks := r.addNetworks(parent, nodes)
	for i := range nodes {
		n := &nodes[i]
		tree := inNetworks[n.pattern()]
		if tree == nil {
			tree = parent.Add(descriptors.Pattern{Key: n.Key, Value: n.Value}, r.options.Wildcards)
		}
		tree.Value.node = n
		path := append(above[:len(above):len(above)], n)
		if n.hasLimits() {
			tree.Value.rule = r.newRule(domain, path)
			r.order = append(r.order, tree.Value.rule)
		}
		r.compile(tree, domain, path, n.Descriptors)
	}
}

// addNetworks adds the children for nodes with a Network, those of one key together. It returns them.
func (r *Rules) addNetworks(
	parent *descriptors.Tree[position], nodes []Node,
) (children map[pattern]*descriptors.Tree[position]) {
	var names map[string][]string // by key
	for i := range nodes {
		if n := &nodes[i]; n.Network != "" {
			if names == nil {
				names, children = map[string][]string{}, map[pattern]*descriptors.Tree[position]{}
			}
			names[n.Key] = append(names[n.Key], n.Network)
		}
	}
	for key, list := range names {
		for i, child := range parent.AddNetworks(key, r.networks.Of(list...), len(list)) {
			children[pattern{network: list[i], Pattern: descriptors.Pattern{Key: key}}] = child
		}
	}
	return children
}

// Networks returns the lists of networks, and the tables that the rules use.
func (r *Rules) Networks() *networks.Tables { return r.networks }

// All returns the rules in the order of their files. Callers must not change the slice.
func (r *Rules) All() []*Rule { return r.order }

// Domains returns the names of the domains that a source has, sorted.
func (r *Rules) Domains() []string { return slices.Sorted(maps.Keys(r.domains)) }
