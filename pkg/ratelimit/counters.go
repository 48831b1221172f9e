package ratelimit

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Counters count the decisions of one rule. They are safe for concurrent use.
type Counters struct {
	// Allowed and Denied count descriptors that were enforced, by the verdict of their limit.
	Allowed, Denied atomic.Uint64
	// ShadowDenied counts descriptors of a rule in shadow mode that would have been denied; the allowed ones are in Allowed.
	ShadowDenied atomic.Uint64
	// Undecided counts descriptors that the store could not decide and the rule's on_store_error answered.
	Undecided atomic.Uint64
}

// Totals count what belongs to no rule. They are safe for concurrent use.
type Totals struct {
	// UnknownDomain counts requests for a domain without rules, Unmatched descriptors that no rule matched.
	UnknownDomain, Unmatched atomic.Uint64
	// Overrides counts the decisions of limits that requests brought.
	Overrides Counters
	// GlobalShadow counts requests over a limit that SHADOW_MODE let pass.
	GlobalShadow atomic.Uint64
	// Store counts requests that the store could not decide, by the policy that answered.
	StoreErrors [Allow + 1]atomic.Uint64
	// UnknownOutcomes are those of StoreErrors that may have been charged all the same.
	UnknownOutcomes atomic.Uint64
}

// maxDynamicNames bounds the series of one set of rules that detailed_metric and value_to_metric can make.
const maxDynamicNames = 10_000

// dynamicNames are the counters of rules whose names in metrics carry values of requests.
type dynamicNames struct {
	mu    sync.RWMutex
	named map[dynamicName]*Counters
}

type dynamicName struct{ domain, name string }

// OtherValues stands for values of requests that came after maxDynamicNames others.
const OtherValues = "(other values)"

// counters returns where decisions of the rule for these entries are counted.
func (r *Rules) counters(rule *Rule, entries []descriptors.Entry) *Counters {
	name := rule.metricName(entries)
	if name == rule.Name {
		return rule.Counters
	}
	d := &r.dynamic
	d.mu.RLock()
	c := d.named[dynamicName{rule.Domain, name}]
	d.mu.RUnlock()
	if c != nil {
		return c
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.named == nil {
		d.named = make(map[dynamicName]*Counters)
	}
	if len(d.named) >= maxDynamicNames {
		name = OtherValues
	}
	c = d.named[dynamicName{rule.Domain, name}]
	if c == nil {
		c = new(Counters)
		d.named[dynamicName{rule.Domain, name}] = c
	}
	return c
}

// metricName is the rule's name, with values of the request where detailed_metric (all of them) or value_to_metric (that of
// the level) ask for it.
func (r *Rule) metricName(entries []descriptors.Entry) string {
	dynamic := r.DetailedMetric
	for _, n := range r.path {
		dynamic = dynamic || n.ValueToMetric
	}
	if !dynamic {
		return r.Name
	}
	path := make([]Node, len(r.path))
	for i, n := range r.path {
		path[i] = Node{Key: n.Key, Value: n.Value}
		if n.ShareThreshold {
			continue
		}
		if r.DetailedMetric || n.ValueToMetric {
			path[i] = Node{Key: entries[i].Key, Value: strings.ToValidUTF8(entries[i].Value, "\uFFFD")}
		}
	}
	return pathName(path)
}

// EachCounters calls f for every name that decisions are counted under.
func (r *Rules) EachCounters(f func(domain, name string, c *Counters)) {
	for _, rule := range r.order {
		f(rule.Domain, rule.Name, rule.Counters)
	}
	r.dynamic.mu.RLock()
	defer r.dynamic.mu.RUnlock()
	for n, c := range r.dynamic.named {
		f(n.domain, n.name, c)
	}
}

// inherit takes over the counters of rules that were in force before.
func (r *Rules) inherit(old *Rules) {
	if old == nil {
		return
	}
	counters := make(map[dynamicName]*Counters, len(old.order))
	for _, rule := range old.order {
		counters[dynamicName{rule.Domain, rule.Name}] = rule.Counters
	}
	for _, rule := range r.order {
		if c := counters[dynamicName{rule.Domain, rule.Name}]; c != nil {
			rule.Counters = c
		}
	}
	old.dynamic.mu.RLock()
	defer old.dynamic.mu.RUnlock()
	r.dynamic.named = make(map[dynamicName]*Counters, len(old.dynamic.named))
	for n, c := range old.dynamic.named {
		if r.domains[n.domain] != nil {
			r.dynamic.named[n] = c
		}
	}
}
