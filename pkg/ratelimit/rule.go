package ratelimit

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rule is a compiled node that has limits.
type Rule struct {
	Node *Node
	// Domain is the rule's domain.
	Domain string
	// Name is the path of keys and values, "key_value.key", as in the statistics of envoyproxy/ratelimit.
	Name string
	// Unlimited means that every request passes: the only limit counts nothing and can only replace other limits.
	Unlimited bool
	// Limits shadows Node.Limits. It has at least one element.
	Limits []RuleLimit

	held        *atomic.Int64 // the requests that have Places. It goes on when rules are loaded again.
	path        []*Node
	overrides   bool           // a limit has an Override
	holds       bool           // its limits have holds
	dynamicName bool           // detailed_metric or value_to_metric
	byValue     *valueCounters // nil unless dynamicName
	// buckets are the entries of a request that distinguish the buckets of the rule.
	buckets []variable
}

// Path returns the nodes that a descriptor of the rule matches, one for each entry. The caller must not change it.
func (r *Rule) Path() []*Node { return r.path }

// RuleLimit is a compiled limit, with all defaults and the names of its buckets.
type RuleLimit struct {
	// Limit is the limit that a store decides by. It is the zero value in an unlimited rule.
	bucket.Limit
	// Name is current_limit.name in the response to Envoy. Replaces of other rules refers to it.
	Name string
	// Policy is the name in RateLimit headers, of letters, digits and `_.-` only: the limit's own name, else the rule's.
	Policy string
	// PolicyItem is its item in RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers): the same in each answer. With a
	// calendar it lacks the window, which differs.
	PolicyItem string
	// Replaces are the names of limits that do not apply to a request to which this one applies.
	Replaces []string
	// Unit and UnitMultiplier (≥ 1) make up the window in the response to Envoy.
	Unit           descriptors.Unit
	UnitMultiplier uint32
	// CountDenied sets whether denied hits are charged. nil charges an explicit hits_addend, which may settle costs known
	// only afterwards and must not be lost, but not the implicit single hit.
	CountDenied *bool
	// OnStoreError decides if the store cannot.
	OnStoreError StoreErrorPolicy
	// HashTag is the key of the entry whose value chooses the slot of a Redis Cluster, "" for none.
	HashTag string
	// Override lets limits that requests and credentials bring replace this one; nil for none.
	Override *Override
	// Shadow means that the limit is decided and counted, but never enforced: the rule is in shadow mode, or the limit.
	Shadow bool
	// Enforce is for which requests the limit is enforced; nil for all. For the others, another RuleLimit applies.
	Enforce *Enforce
	// MaxDelay is how early a request may be, in µs, as the time in which whole units leak. An early request is held
	// until its time; one that is even earlier is denied. In a leaky bucket each request has a time, in a token bucket
	// each beyond the burst. 0 means that none is held.
	MaxDelay int64
	// Lease is how many units of a bucket a replica may charge in advance, 0 for none. A strict limiter ignores it.
	Lease uint64
	// Hold has the terms of the holds, and is that of all plain takes. It is nil for a limit without holds.
	Hold *bucket.Hold
	// Problem is the body of a denial by this limit; nil for the usual body.
	Problem *ProblemDetail
	// Status is the HTTP status of a denial by this limit. 0 means 429.
	Status int
	// Headers are own headers of answers. Hidden means that clients do not see the limit: no header and no body names it.
	Headers []OwnHeader
	Hidden  bool
	// Counters count the decisions, except in a rule with detailed_metric or value_to_metric. They go on after a reload.
	Counters *Counters
	// DenialLines bounds the lines that a log has about denials by the limit. It goes on as Counters do. It is nil for a
	// limit that a request brings without a rule.
	DenialLines *Gate

	index    int              // in Rule.Limits.
	beside   bool             // in shadow beside limits of the rule that are enforced.
	apart    bool             // it has buckets of its own: it is beside others, or not enforced for all as they are.
	out      *RuleLimit       // the limit in shadow, for requests that Enforce leaves out; nil for none.
	chosen   bucket.Algorithm // as the rule names it: bucket.SlidingWindow, or Algorithm.
	identity string           // what all bucket keys of the limit begin with.
	rule     uint64           // for bucket.Take.Rule.
	hashTag  int              // index of the entry whose value is the Redis Cluster hash tag, −1 for none.
	burst    int64            // as the rule has it; 0 for none.
	// replaceable is the name by which Replaces of other rules refers to the limit, or to the one in its place.
	replaceable string
	brought     *broughtLimits // nil without Override.
}

// variable is an entry whose key or value the rule's path does not fix.
type variable struct {
	entry      int
	key, value bool
}

func (r *Rules) newRule(domain string, path []*Node) *Rule {
	node := path[len(path)-1]
	rule := &Rule{
		Node: node, Domain: domain, Name: pathName(path),
		Unlimited:   node.RateLimit != nil && node.RateLimit.Unlimited && len(node.Limits) == 0,
		path:        path,
		dynamicName: node.DetailedMetric || slices.ContainsFunc(path, func(n *Node) bool { return n.ValueToMetric }),
	}
	for i, n := range path {
		p := descriptors.Pattern{Key: n.Key, Value: n.Value}
		v := variable{entry: i, key: strings.Contains(n.Key, "*")}
		v.value = (n.Value == "" || p.Wildcard()) && !n.ShareThreshold
		if v.key || v.value {
			rule.buckets = append(rule.buckets, v)
		}
	}
	limits := node.AllLimits()
	inForce := slices.DeleteFunc(slices.Clone(limits), func(l Limit) bool { return l.Shadow })
	rule.Limits = make([]RuleLimit, 0, len(limits))
	for i := range limits {
		limit := r.newLimit(rule, &limits[i], inForce)
		rule.overrides = rule.overrides || limit.Override != nil
		rule.holds = rule.holds || limit.Hold != nil
		rule.Limits = append(rule.Limits, limit)
	}
	r.counters.add(rule, r.options.Before, r.options.MetricValues)
	return rule
}

// newLimit compiles a limit of a rule. inForce are the limits of the rule that are not in shadow by themselves.
func (r *Rules) newLimit(rule *Rule, l *Limit, inForce []Limit) RuleLimit {
	forAll := func(l Limit) bool { return l.Enforce == nil }
	compiled := RuleLimit{
		Name: l.Name, HashTag: l.HashTag, Problem: l.Problem, hashTag: -1, replaceable: l.Name,
		Shadow: rule.Node.Shadow || l.Shadow, beside: l.Shadow && len(inForce) > 0 && !rule.Node.Shadow, Enforce: l.Enforce,
		Status: cmp.Or(l.Status, r.options.Status), Headers: l.Headers.Compile(), Hidden: l.Headers.Off(),
	}
	compiled.apart = compiled.beside || l.Enforce != nil && slices.ContainsFunc(inForce, forAll)
	for _, other := range l.Replaces {
		if !compiled.beside {
			compiled.Replaces = append(compiled.Replaces, other.Name)
		}
	}
	if !rule.Unlimited {
		r.countBy(&compiled, l)
	}
	for i, n := range rule.path {
		if l.HashTag != "" && n.Key == l.HashTag {
			compiled.hashTag = i
		}
	}
	compiled.Policy = policyName(rule.Name, &compiled, l.Shadow || len(inForce) > 1)
	compiled.PolicyItem = compiled.policyItem()
	id := identity(rule.Domain, rule.path, &compiled)
	compiled.identity, compiled.rule = string(id), hashOf(id)
	compiled.out = compiled.shadowed(len(inForce) > 1)
	if o := compiled.Override; o != nil {
		compiled.brought = &broughtLimits{defaults: r.options.defaults()}
		compiled.brought.defaults.algorithm, compiled.brought.defaults.zone = compiled.chosen, compiled.Calendar.Zone()
		if o.Name != "" {
			named := compiled
			named.Name, named.Policy = o.Name, plainName(o.Name)
			named.out = named.shadowed(len(inForce) > 1)
			compiled.brought.named = &named
		}
	}
	return compiled
}

// shadowed returns the limit as it applies to requests that Enforce leaves out, nil without it. beside means that the
// rule has other limits. A limit in shadow changes no decision, so it replaces nothing.
func (l *RuleLimit) shadowed(beside bool) *RuleLimit {
	if l.Enforce == nil {
		return nil
	}
	out := *l
	out.Shadow, out.beside, out.Replaces, out.out = true, beside, nil, nil
	return &out
}

// applied returns the limit that applies to a request with these entries: l, or l in shadow.
func (l *RuleLimit) applied(entries []descriptors.Entry) *RuleLimit {
	if l.out == nil || l.Enforce.Includes(l.Enforce.ValueIn(entries)) {
		return l
	}
	return l.out
}

// countBy sets how a limit is counted. A limit that cannot be counted denies every request.
func (r *Rules) countBy(compiled *RuleLimit, l *Limit) {
	spec := l.spec(r.options.defaults())
	limit, err := spec.ofRule()
	if compiled.Hold = l.hold(); err != nil || limit.Algorithm.Windowless() && compiled.Hold == nil {
		spec = LimitSpec{Unit: descriptors.Second, Multiplier: 1, Algorithm: bucket.FixedWindow}
		limit, _ = spec.Bucket()
	}
	compiled.Limit, compiled.chosen, compiled.burst = limit, spec.Algorithm, spec.Burst
	compiled.Unit, compiled.UnitMultiplier = spec.Unit, uint32(spec.Multiplier) // it fits: see LimitSpec
	compiled.CountDenied, compiled.OnStoreError = l.CountDenied, l.OnStoreError
	if !l.OnStoreError.known() {
		compiled.OnStoreError = r.options.DefaultPolicy
	}
	if compiled.Hold != nil {
		return
	}
	if o := l.Override; o != nil && o.Max > 0 && o.Max <= bucket.MaxWindowRequests {
		compiled.Override = o
	}
	if limit.Algorithm.HasQueue() && limit.Requests > 0 && l.MaxDelay > 0 && l.MaxDelay <= maxQueueTime {
		if units, micros := queueTime(limit, l.MaxDelay); withQueue(limit, units).Check() == nil {
			compiled.MaxDelay = micros
		}
	}
	compiled.Lease = l.lease(limit, compiled.MaxDelay)
}

func pathName(path []*Node) string {
	names := make([]string, len(path))
	for i := range path {
		names[i] = path[i].Name()
	}
	return strings.Join(names, ".")
}

// Name returns the node's part of a rule name, as in the statistics of envoyproxy/ratelimit.
func (n *Node) Name() string {
	if value := n.Value + n.Network; value != "" { // Check allows one of them
		return n.Key + "_" + value
	}
	return n.Key
}

// policyName returns a name that needs no quoting in an RFC 9651 string or in Envoy's own headers, which never quote.
func policyName(rule string, l *RuleLimit, several bool) string {
	name := l.Name
	if name == "" {
		name = rule
		switch {
		case several && l.Algorithm.Windowless():
			name += fmt.Sprintf("-%d-at-once", l.Requests)
		case several:
			name += fmt.Sprintf("-%d-a-%d-%s", l.Requests, l.UnitMultiplier, l.Unit)
		}
	}
	return plainName(name)
}

// plainName replaces the characters that need quotes in a header.
func plainName(name string) string {
	return strings.Map(func(c rune) rune {
		if plainInHeaders(c) {
			return c
		}
		return '_'
	}, name)
}

// policyItem returns PolicyItem: an RFC 9651 string with the requests and the seconds. Policy needs no escapes.
func (l *RuleLimit) policyItem() string {
	item := `"` + l.Policy + `";q=` + strconv.FormatInt(l.Requests, 10)
	if l.Window > 0 && l.Calendar == nil {
		item += ";w=" + strconv.FormatInt(Seconds(l.Window), 10)
	}
	return item
}

// plainInHeaders reports whether every header can hold the character without quotes.
func plainInHeaders(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("_.-", c)
}
