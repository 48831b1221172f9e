package ratelimit

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Series names counters.
type Series struct {
	Domain string
	// Rule is the name of the rule. If the rule has detailed_metric or value_to_metric, it holds values of requests.
	Rule string
	// Limit is the RuleLimit.Policy of the limit.
	Limit string
	// Beside means that the limit is in shadow beside others, which count the same descriptors.
	Beside bool
	// Out means that the counters are those of requests that Enforce leaves out.
	Out bool
}

const (
	// otherValue stands for the values of requests beyond RulesOptions.MetricValues, and for long values.
	otherValue = "other"
	// maxMetricValue is the length in bytes of the longest value of a request in a Series.
	maxMetricValue = 256
)

// counterSet holds the counters of a set of rules, and the gates of their log lines. Limits with the same Series share
// them. It does not change once the rules are compiled.
type counterSet struct {
	fixed   map[Series]*fixedCounters
	byValue map[Series]*valueCounters // by the domain and the rule
	// gone has the counters of rules that the last change removed, with decisions since the last scrape. nil for none.
	gone *counterSet
}

// fixedCounters are the counters and the gate of a limit, and the held requests of a rule whose first limit it is.
type fixedCounters struct {
	Counters
	lines Gate
	held  atomic.Int64
}

func newCounterSet() counterSet {
	return counterSet{
		fixed: make(map[Series]*fixedCounters), byValue: make(map[Series]*valueCounters),
	}
}

// without returns the counters that next does not have.
func (s *counterSet) without(next *counterSet) *counterSet {
	gone := newCounterSet()
	for name, c := range s.fixed {
		if next.fixed[name] == nil {
			gone.fixed[name] = c
		}
	}
	for name, v := range s.byValue {
		if next.byValue[name] != v {
			gone.byValue[name] = v
		}
	}
	return &gone
}

// add gives a rule its counters and its gates. If the previous rules have the same, these go on.
func (s *counterSet) add(rule *Rule, before *Rules, values int) {
	var old, gone counterSet
	if before != nil {
		old = before.counters
	}
	if old.gone != nil {
		gone = *old.gone
	}
	name := Series{Domain: rule.Domain, Rule: rule.Name}
	counted := rule.counted()
	limits := make([]Series, len(counted))
	for i, l := range counted {
		name.Limit, name.Beside, name.Out = l.Policy, l.beside, l.Enforce != nil && l.out == nil
		limits[i] = Series{Domain: rule.Domain, Limit: l.Policy, Beside: l.beside, Out: name.Out}
		if s.fixed[name] == nil {
			s.fixed[name] = cmp.Or(old.fixed[name], gone.fixed[name], new(fixedCounters))
		}
		if l.Hold != nil {
			s.fixed[name].holds.Store(true)
		}
		l.Counters, l.DenialLines, l.index = &s.fixed[name].Counters, &s.fixed[name].lines, i
		if i == 0 {
			rule.held = &s.fixed[name].held
		}
	}
	name = Series{Domain: rule.Domain, Rule: rule.Name}
	if !rule.dynamicName {
		return
	}
	rule.byValue = &valueCounters{limits: limits, max: values, named: make(map[string][]Counters)}
	for _, same := range []*valueCounters{s.byValue[name], old.byValue[name], gone.byValue[name]} {
		if same != nil && slices.Equal(same.limits, limits) {
			rule.byValue = same
			break
		}
	}
	s.byValue[name] = rule.byValue
}

// counted returns the limits that have counters: those of the rule, then those with an Override.Name, then those in
// shadow for requests that Enforce leaves out.
func (r *Rule) counted() (limits []*RuleLimit) {
	for i := range r.Limits {
		limits = append(limits, &r.Limits[i])
	}
	for i := range r.Limits {
		if brought := r.Limits[i].brought; brought != nil && brought.named != nil {
			limits = append(limits, brought.named)
		}
	}
	for _, l := range limits {
		if l.out != nil {
			limits = append(limits, l.out)
		}
	}
	return limits
}

// valueCounters are the counters of a rule with detailed_metric or value_to_metric, by its name with values.
type valueCounters struct {
	limits []Series // without a rule
	max    int

	mu    sync.RWMutex
	named map[string][]Counters // by the index of the limit
}

// get returns the counters of a limit for a name with values, and those of the name other if there are too many names.
func (v *valueCounters) get(limit int, name string, other func() string) *Counters {
	v.mu.RLock()
	c := v.named[name]
	if c == nil && len(v.named) >= v.max {
		c = v.named[other()]
	}
	v.mu.RUnlock()
	if c == nil {
		c = v.add(name, other)
	}
	return &c[limit]
}

func (v *valueCounters) add(name string, other func() string) []Counters {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.named[name] == nil && len(v.named) >= v.max {
		name = other()
	}
	if v.named[name] == nil {
		v.named[strings.Clone(name)] = make([]Counters, len(v.limits))
	}
	return v.named[name]
}

// counters returns the counters for the decision of a limit of the rule on these entries.
func (r *Rule) counters(l *RuleLimit, entries []descriptors.Entry) *Counters {
	if r.byValue == nil {
		return l.Counters
	}
	return r.byValue.get(l.index, r.metricName(entries), func() string { return r.metricName(nil) })
}

// metricName returns the rule's name with the values of a request for detailed_metric and value_to_metric. Without
// entries, each of these values is "other".
func (r *Rule) metricName(entries []descriptors.Entry) string {
	names := make([]string, len(r.path))
	for i, n := range r.path {
		named := Node{Key: n.Key, Value: n.Value, Network: n.Network}
		switch {
		case n.ShareThreshold || !r.Node.DetailedMetric && !n.ValueToMetric:
		case entries == nil:
			named.Value, named.Network = otherValue, ""
		default:
			named = Node{Key: metricValue(entries[i].Key), Value: metricValue(entries[i].Value)}
		}
		names[i] = named.Name()
	}
	return strings.Join(names, ".")
}

func metricValue(v string) string {
	if len(v) > maxMetricValue {
		return otherValue
	}
	return strings.ToValidUTF8(v, "\uFFFD")
}

// EachCounters calls f for all counters of the rules and of those that the last change removed. Some share a Series.
func (r *Rules) EachCounters(f func(s Series, c *Counters)) {
	for set := &r.counters; set != nil; set = set.gone {
		for name, c := range set.fixed {
			f(name, &c.Counters)
		}
		for _, v := range set.byValue {
			v.each(f)
		}
	}
}

func (v *valueCounters) each(f func(s Series, c *Counters)) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	for name, limits := range v.named {
		for i := range limits {
			s := v.limits[i]
			s.Rule = name
			f(s, &limits[i])
		}
	}
}

// Sum is what the limits of a rule have decided, in descriptors. A limit in shadow beside others adds requests only
// where no other limit applied.
type Sum struct{ Requests, Denied, ShadowDenied uint64 }

// Sum adds up the counters of the rule, with those of any values of requests.
func (r *Rule) Sum() (sum Sum) {
	for _, l := range r.counted() {
		of := r.sumOf(l)
		sum.Denied += of.Denied
		sum.ShadowDenied += of.ShadowDenied
		sum.Requests += of.Requests
	}
	return sum
}

// sumOf is Sum for one limit.
func (r *Rule) sumOf(l *RuleLimit) (sum Sum) {
	for _, c := range r.allCounters(l) {
		sum.Denied += c.Denied.Descriptors()
		sum.ShadowDenied += c.ShadowDenied.Descriptors()
		if sum.Requests += c.Allowed.Descriptors() + c.Denied.Descriptors(); !l.beside {
			sum.Requests += c.ShadowDenied.Descriptors()
		}
	}
	return sum
}
