package ratelimit

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Result is the decision on a query.
type Result struct {
	// Err is set if there is no decision; then nothing else is. It is a QueryError, ErrNoRules or, if the limiter is
	// strict, the error of the store. Nothing that clients choose is an error: Envoy allows a request if the call fails.
	Err error
	// Allowed is the verdict.
	Allowed bool
	// RetryAfter is the wait until a denied request could pass, in µs, or bucket.Never.
	RetryAfter int64
	// Delay is how long to hold the answer to an allowed request, in µs, at most Query.MaxHold. Requests then leave at
	// the rate of a limit with a MaxDelay.
	Delay int64
	// Decider is what decided.
	Decider Decider
	// Statuses has one status for each descriptor, in the order of the query.
	Statuses []Status
	// Limits are all limits that applied to any descriptor.
	Limits []Applied
	// DeniedSince is the first denial of the present run of the limit that denies longest, as this process has seen it, in
	// µs since 1970. A run ends when a request of the key is allowed. 0 if nothing denies, or if no bucket has decided.
	DeniedSince int64
}

// Decider is what made a decision.
type Decider uint8

// The deciders: the store, the store error policy in place of the store, the last denial of the store, or units that
// the store has charged in advance.
const (
	FromStore Decider = iota
	FromLastKnown
	FromPolicyAllow
	FromPolicyDeny
	FromDenialCache
	FromLease
	deciders // how many there are
)

// String returns the decider as one word for logs and traces.
func (d Decider) String() string {
	return [...]string{
		FromStore: "store", FromLastKnown: "last_known_state", FromPolicyAllow: "policy_allow",
		FromPolicyDeny: "policy_deny", FromDenialCache: "denial_cache", FromLease: "lease",
	}[d]
}

// Undecided reports whether the store error policy decided.
func (d Decider) Undecided() bool {
	return d == FromLastKnown || d == FromPolicyAllow || d == FromPolicyDeny
}

// Status is the decision on one descriptor.
type Status struct {
	// Rule is the matching rule, nil if none matched, or if the request brought its limit and the rule has no Override.
	Rule *Rule
	// Unlimited is set if the rule has no limit.
	Unlimited bool
	// Binding is the limit that denies longest or leaves least, nil for none. It is in shadow only if no other applied.
	Binding *Applied
	// Shown is the same of those that a client may see (RuleLimit.Hidden); never a limit in shadow beside others.
	Shown *Applied
	// ShadowDenied is a limit in shadow that would have denied: Binding, or one beside it; nil for none. With
	// Config.Shadow, each limit is in shadow.
	ShadowDenied *Applied
}

// RuleName returns the name of the rule: "override" for a limit of a request without one, "" for a nil status.
func (s *Status) RuleName() string {
	switch {
	case s == nil:
		return ""
	case s.Rule == nil:
		return "override"
	}
	return s.Rule.Name
}

// Tightest returns the status of the descriptor with the tightest limit. It is nil if no limit applied or res is nil.
func (res *Result) Tightest() *Status {
	if res == nil {
		return nil
	}
	var tightest *Status
	for i := range res.Statuses {
		s := &res.Statuses[i]
		if s.Binding != nil && (tightest == nil || Compare(s.Binding, tightest.Binding) < 0) {
			tightest = s
		}
	}
	return tightest
}

// DeniedBy returns the limit that denies longest, nil if none denies.
func (res *Result) DeniedBy() (by *Applied) {
	for i := range res.Limits {
		if a := &res.Limits[i]; a.Denied() && (by == nil || Compare(a, by) < 0) {
			by = a
		}
	}
	return by
}

// DeniedStatus returns the HTTP status of a denial by the limit, 429 for nil.
func (a *Applied) DeniedStatus() int {
	if a != nil && a.Limit.Status != 0 {
		return a.Limit.Status
	}
	return http.StatusTooManyRequests
}

// Denial returns for metadata when a denied request could pass, in seconds or bucket.Never, and DeniedSince in the form
// of RFC 3339, "" for none. denied is false for an allowed request and a nil res.
func (res *Result) Denial() (retryAfter int64, since string, denied bool) {
	if res == nil || res.Allowed {
		return 0, "", false
	}
	if res.DeniedSince != 0 {
		since = time.UnixMicro(res.DeniedSince).UTC().Format(time.RFC3339)
	}
	if retryAfter = res.RetryAfter; retryAfter != bucket.Never {
		retryAfter = Seconds(retryAfter)
	}
	return retryAfter, since, true
}

// DecidedBy names the source of the decision. It is empty if no limit applied or res is nil.
func (res *Result) DecidedBy() string {
	if res.Tightest() == nil {
		return ""
	}
	return res.Decider.String()
}

// Applied is a limit that applied to a descriptor, with the decision of its bucket.
type Applied struct {
	Limit *RuleLimit
	// Decision is the bucket's; Cost is the requested cost, clamped.
	Decision bucket.Decision
	Cost     uint64
	// Shadow is set if the limit is in shadow: its denial is counted but not enforced.
	Shadow bool
	// Quota is set if the limit is a quota, which denies only together with all others of the request.
	Quota  bool
	cached bool // the local cache denies it

	// Bucket is the bucket before the decision of a Dry limiter, nil for any other limiter.
	Bucket *Bucket

	// Hold is what was asked of the holds of the limit: to reserve, or to settle. It is nil for a plain take.
	// Decision.Held is about its bucket, which another descriptor of the query may have, too.
	Hold *bucket.Hold

	left int64 // what was left before, if compare has decided
}

// Denied reports whether the limit is exceeded and enforced.
func (a *Applied) Denied() bool { return !a.Decision.Allowed && !a.Shadow }

// Remaining is what the decision leaves, as Envoy's uint32.
func (a *Applied) Remaining() uint32 { return uint32(min(a.Decision.Remaining, math.MaxUint32)) }

// Wait returns the reset time for clients, in whole seconds. For a denial it is the time until the same request fits,
// or the window if it never fits. Otherwise it is the time until the full quota is available. It is rounded up,
// because a client that comes early is denied again.
func (a *Applied) Wait() int64 {
	wait := a.Decision.ResetAfter
	if a.Denied() {
		wait = a.Decision.RetryAfter
		if wait == bucket.Never {
			wait = a.Window()
		}
	}
	return Seconds(wait)
}

// Window returns the length of the window of the decision, in µs. Without a decision of a bucket, it is that of today.
func (a *Applied) Window() int64 {
	at := a.Decision.ChargedAt
	if at == 0 && a.Limit.Calendar != nil {
		at = time.Now().UnixMicro()
	}
	return a.Limit.Length(at)
}

// Seconds rounds µs up to whole seconds.
func Seconds(micros int64) int64 { return (micros + 999_999) / 1_000_000 }

// Clear drops all that the result refers to. It keeps the memory of its slices for another result, unless it is large.
func (res *Result) Clear() {
	*res = Result{Statuses: texts.Clear(res.Statuses), Limits: texts.Clear(res.Limits)}
}

// reset empties the result, with room for some statuses and limits.
func (res *Result) reset(statuses, limits int) {
	*res = Result{
		Statuses: slices.Grow(res.Statuses[:0], statuses)[:statuses], Limits: slices.Grow(res.Limits[:0], limits)[:limits],
	}
	clear(res.Statuses)
}

// result makes one status for each descriptor from the decisions, and counts them.
func (p *Plan) result(takes []bucket.Take, o *bucket.Outcome, r *Rounds, res *Result) {
	res.reset(len(p.matches), len(p.limits))
	res.Allowed, res.RetryAfter, res.Decider = o.Allowed, o.RetryAfter, p.decider
	for i := range p.matches {
		rule := p.matches[i].rule
		res.Statuses[i].Rule = rule
		res.Statuses[i].Unlimited = rule != nil && rule.Unlimited
	}
	for i := range p.limits {
		a, applied := &p.limits[i], &res.Limits[i]
		s := &res.Statuses[a.descriptor]
		*applied = Applied{
			Limit: a.limit, Shadow: a.limit.Shadow, Quota: p.role(s.Rule, a.limit) == bucket.Quota, cached: a.cached > 0,
		}
		if applied.cached {
			if p.limiter.dry {
				applied.Bucket = &Bucket{Descriptor: a.descriptor, Capacity: a.limit.Requests, Used: a.limit.Requests}
			}
			continue
		}
		t := &takes[a.take]
		applied.Decision, applied.Cost = o.Decisions[a.take], t.Cost
		if a.hold != nil {
			one := a.hold.Reserves
			if len(one) == 0 {
				one = a.hold.Settles
			}
			applied.Hold, applied.Cost = a.hold, min(one[0].Cost, uint64(2*a.limit.Capacity()+1))
		}
		if p.limiter.dry {
			applied.Bucket = bucketOf(t, o, a.take, a.descriptor)
			if p.counted { // the store counts without the limit
				applied.Bucket.Capacity = a.limit.Requests
			}
			applied.Bucket.DeniedSince, applied.Bucket.Denials = p.limiter.DeniedSince(t.Key)
		}
		// A peek does not wait: it is not charged, so nothing would bound how many peeks wait.
		if a.limit.MaxDelay > 0 && applied.Decision.Allowed && t.Cost > 0 && t.Role != bucket.Shadow {
			res.Delay = max(res.Delay, applied.Decision.Delay)
		}
	}
	if p.counted {
		p.compare(takes, res)
	}
	if len(p.limits) == 0 {
		return
	}
	p.limiter.totals.Decided[p.decider].Add(1)
	for i := range p.limits {
		applied, s := &res.Limits[i], &res.Statuses[p.limits[i].descriptor]
		if s.Binding == nil || Compare(applied, s.Binding) < 0 {
			s.Binding = applied
		}
		if !applied.Limit.Hidden && !applied.Limit.beside && (s.Shown == nil || Compare(applied, s.Shown) < 0) {
			s.Shown = applied
		}
	}
	global := !res.Allowed && p.limiter.cfg.Shadow
	counts := uint64(0)
	if !p.limiter.dry {
		counts = p.limiter.sketch.sample(r)
	}
	var by *Applied
	for i := range p.limits {
		a, applied := &p.limits[i], &res.Limits[i]
		s, d := &res.Statuses[a.descriptor], &p.query.Descriptors[a.descriptor]
		counted := applied == s.Binding || applied.Limit.beside && !applied.Decision.Allowed
		if counted && !applied.Decision.Allowed && (applied.Shadow || global) {
			s.ShadowDenied = applied
		}
		capacity := applied.Limit.Capacity()
		if applied.Limit.MaxDelay > 0 {
			capacity = p.queueCapacity(applied.Limit, d)
		}
		near := int64(float32(capacity) * p.limiter.cfg.NearLimitRatio)
		if counted && !p.limiter.dry {
			p.count(s.Rule, applied, d, capacity, near)
		}
		if applied.Decision.Held != nil {
			if !p.limiter.dry {
				p.countHolds(i, applied)
			}
			if applied.Settles() {
				continue // it ends no run of denials
			}
		}
		ofLimit := &p.limiter.totals.RequestLimits
		if a.limit.Counters != nil {
			ofLimit = a.limit.Counters
		}
		far := applied.Decision.Allowed && capacity-applied.Decision.Remaining <= near && counts == 0
		if far && ofLimit.over.Load() == 0 {
			continue
		}
		since := p.note(&noted{p, a, ofLimit, &applied.Decision, capacity, counts, far}, takes, r)
		if since != 0 && applied.Denied() && (by == nil || Compare(applied, by) < 0) {
			by, res.DeniedSince = applied, since
		}
	}
	if global {
		res.Allowed = true
		p.limiter.totals.GlobalShadow.Add(1)
	}
}

// Compare is negative if limit a matters more to a client than b. A denial precedes an allowed limit; of two denials,
// the longer one; otherwise the limit that leaves less. A limit in shadow beside others comes last.
func Compare(a, b *Applied) int {
	if a.Limit.beside != b.Limit.beside {
		if a.Limit.beside {
			return 1
		}
		return -1
	}
	if order := cmp.Compare(b.denial(), a.denial()); order != 0 {
		return order
	}
	return cmp.Compare(a.Decision.Remaining, b.Decision.Remaining)
}

// denial returns how long the limit denies, 0 if it does not. bucket.Never is the longest.
func (a *Applied) denial() uint64 {
	if !a.Denied() {
		return 0
	}
	return max(1, uint64(a.Decision.RetryAfter))
}

// count counts the decision of a limit on a descriptor. rule is nil if the request brought the limit.
func (p *Plan) count(rule *Rule, a *Applied, d *descriptors.Descriptor, capacity, near int64) {
	c, hits := p.counters(rule, a.Limit, d)
	if !a.Settles() { // its reserve was counted
		c.count(a, hits, capacity, near)
	}
	switch {
	case p.decider.Undecided():
		c.Undecided.Add(1)
	case a.cached || p.decider == FromDenialCache && !a.Decision.Allowed:
		c.Cached.Add(hits - min(hits, uint64(a.Decision.Remaining)))
	}
}

// queueCapacity returns the capacity of the bucket of a limit with a MaxDelay for a descriptor.
func (p *Plan) queueCapacity(l *RuleLimit, d *descriptors.Descriptor) int64 {
	t := bucket.Take{Limit: l.Limit}
	p.cost(&t, d, l)
	p.queue(&t, l)
	return t.Capacity()
}

// countersOf returns the counters of a limit that applies, and the hits to count.
func (p *Plan) countersOf(a *appliedLimit) (c *Counters, hits uint64) {
	return p.counters(p.matches[a.descriptor].rule, a.limit, &p.query.Descriptors[a.descriptor])
}

// counters returns the counters of a limit for a descriptor, and the hits to count. rule is as for count.
func (p *Plan) counters(rule *Rule, l *RuleLimit, d *descriptors.Descriptor) (c *Counters, hits uint64) {
	c = &p.limiter.totals.RequestLimits
	if rule != nil {
		c = rule.counters(l, d.Entries)
	}
	if !d.Negative {
		hits = p.hits(d)
	}
	return c, hits
}
