package ratelimit

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Counters count the decisions of one rule. They are safe for concurrent use.
type Counters struct {
	// Allowed and Denied count enforced descriptors by the verdict of their limit.
	Allowed, Denied atomic.Uint64
	// ShadowDenied counts descriptors that a rule in shadow mode would have denied. Allowed counts the others.
	ShadowDenied atomic.Uint64
	// Undecided counts descriptors that the store could not decide, so that on_store_error decided.
	Undecided atomic.Uint64
}

// Totals are the counters that belong to no rule. They are safe for concurrent use.
type Totals struct {
	// UnknownDomain counts requests for a domain without rules, Unmatched descriptors that no rule matched.
	UnknownDomain, Unmatched atomic.Uint64
	// Overrides counts the decisions of limits that requests bring.
	Overrides Counters
	// GlobalShadow counts requests over a limit that SHADOW_MODE allowed.
	GlobalShadow atomic.Uint64
	// StoreErrors counts requests that the store could not decide, by the policy that decided.
	StoreErrors [Allow + 1]atomic.Uint64
	// UnknownOutcomes counts the requests among StoreErrors that may have been charged anyway.
	UnknownOutcomes atomic.Uint64
}

// maxDynamicNames bounds the names that detailed_metric and value_to_metric make from clients' values.
const maxDynamicNames = 10_000

// otherValues replaces the values of requests after the first maxDynamicNames names.
const otherValues = "(other values)"

// counterSet holds the counters of a set of rules. Rules with the same name share their counters.
type counterSet struct {
	mu      sync.RWMutex
	named   map[ruleName]*Counters
	dynamic int // how many of named came from values of requests
}

type ruleName struct{ domain, name string }

// fixed returns the counters of a rule. If the previous set has a rule of this name, its counters go on. fixed is
// called before the set is used.
func (s *counterSet) fixed(n ruleName, before *Rules) *Counters {
	if s.named == nil {
		s.named = make(map[ruleName]*Counters)
	}
	if s.named[n] == nil && before != nil {
		before.named.mu.RLock()
		s.named[n] = before.named.named[n]
		before.named.mu.RUnlock()
	}
	if s.named[n] == nil {
		s.named[n] = new(Counters)
	}
	return s.named[n]
}

// get returns the counters of a name that holds values of a request.
func (s *counterSet) get(n ruleName) *Counters {
	s.mu.RLock()
	c := s.named[n]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dynamic >= maxDynamicNames {
		n.name = otherValues
	}
	if c = s.named[n]; c == nil {
		c = new(Counters)
		s.named[n] = c
		s.dynamic++
	}
	return c
}

// counters returns the counters for decisions of the rule for these entries.
func (r *Rules) counters(rule *Rule, entries []descriptors.Entry) *Counters {
	if !rule.dynamicName {
		return rule.Counters
	}
	return r.named.get(ruleName{rule.Domain, rule.metricName(entries)})
}

// metricName returns the rule's name with the values of a request for detailed_metric and value_to_metric.
func (r *Rule) metricName(entries []descriptors.Entry) string {
	path := make([]Node, len(r.path))
	for i, n := range r.path {
		path[i] = Node{Key: n.Key, Value: n.Value}
		if !n.ShareThreshold && (r.DetailedMetric || n.ValueToMetric) {
			path[i] = Node{Key: entries[i].Key, Value: strings.ToValidUTF8(entries[i].Value, "\uFFFD")}
		}
	}
	return pathName(path)
}

// EachCounters calls f for every name that has counters.
func (r *Rules) EachCounters(f func(domain, name string, c *Counters)) {
	r.named.mu.RLock()
	defer r.named.mu.RUnlock()
	for n, c := range r.named.named {
		f(n.domain, n.name, c)
	}
}
