package ratelimit

import (
	"fmt"
	"slices"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// plan is one query on its way: what each descriptor matched, and which takes came of it.
type plan struct {
	limiter *Limiter
	rules   *Rules
	query   Query
	matches []match // one a descriptor
}

// match is what became of one descriptor.
type match struct {
	rule *Rule // nil when none matched, or when the request brought its limit
	// limits are those that apply, with the index of their take; none for an unmatched or unlimited descriptor.
	limits []appliedLimit
}

type appliedLimit struct {
	limit *RuleLimit
	take  int
}

// OverrideError says what is wrong with a limit that the request brought: a mistake in a configuration, no client's.
type OverrideError struct {
	// Descriptor is its index in the request.
	Descriptor int
	// Reason says what is wrong and what is wanted.
	Reason string
}

// Error names the descriptor and the reason.
func (e *OverrideError) Error() string {
	return fmt.Sprintf("limit of descriptor %d: %s", e.Descriptor, e.Reason)
}

// match finds the rule of each descriptor, in a domain that there is, then drops the limits that others replace.
func (p *plan) match() error {
	var replaced []string
	for i := range p.query.Descriptors {
		d, m := &p.query.Descriptors[i], &p.matches[i]
		if d.Limit != nil {
			limit, err := p.rules.override(p.query.Domain, d.Limit)
			if err != nil {
				return &OverrideError{Descriptor: i, Reason: err.Error()}
			}
			m.limits = []appliedLimit{{limit: limit}}
			continue
		}
		m.rule = p.rules.Find(p.query.Domain, d.Entries)
		if m.rule == nil {
			p.limiter.totals.Unmatched.Add(1)
			continue
		}
		for k := range m.rule.Limits {
			limit := &m.rule.Limits[k]
			replaced = append(replaced, limit.Replaces...)
			if p.query.Own != nil && limit.OverrideMax > 0 {
				limit = m.rule.own(limit, *p.query.Own)
			}
			if !m.rule.Unlimited {
				m.limits = append(m.limits, appliedLimit{limit: limit})
			}
		}
	}
	if len(replaced) == 0 {
		return nil
	}
	for i := range p.matches {
		p.matches[i].limits = slices.DeleteFunc(p.matches[i].limits, func(a appliedLimit) bool {
			return a.limit.Name != "" && slices.Contains(replaced, a.limit.Name)
		})
	}
	return nil
}

// override makes a limit of what the request brought: the default algorithm, with a burst of its requests. If the algorithm
// cannot hold as many requests, the counter decides.
func (r *Rules) override(domain string, o *descriptors.Override) (*RuleLimit, error) {
	spec := LimitSpec{Requests: int64(o.RequestsPerUnit), Unit: o.Unit, Multiplier: uint64(o.UnitMultiplier), Algorithm: r.options.DefaultAlgorithm}
	l, err := spec.Bucket()
	if err != nil { // perhaps because the log holds less than the other algorithms
		spec.Algorithm = bucket.SlidingWindowCounter
		if l, err = spec.Bucket(); err != nil {
			return nil, err
		}
	}
	limit := &RuleLimit{
		Limit: l, Unit: o.Unit, UnitMultiplier: max(1, o.UnitMultiplier), OnStoreError: r.options.DefaultPolicy,
		Policy: "override", hashTag: -1,
	}
	limit.identity, limit.rule = string(overrideIdentity(domain, l)), hashOf(overridesOf(domain))
	return limit, nil
}

// request turns the matches into takes.
func (p *plan) request() *bucket.Request {
	r := &bucket.Request{Takes: make([]bucket.Take, 0, p.limits())}
	quotasCanDeny := p.quotasCanDeny()
	for i := range p.matches {
		m, d := &p.matches[i], &p.query.Descriptors[i]
		for k := range m.limits {
			a := &m.limits[k]
			t := p.cost(d, a.limit)
			t.Rule, t.Limit = a.limit.rule, a.limit.Limit
			if p.query.Refused {
				t.Rule = ^t.Rule
			}
			if a.limit.MaxDelay > 0 {
				t.Limit.Burst = p.queue(t.Limit, min(a.limit.MaxDelay, p.query.MaxHold), t.Cost)
			}
			t.Role = p.role(m.rule)
			if t.Role == bucket.Quota && !quotasCanDeny {
				t.Role = bucket.Shadow
			}
			if m.rule == nil {
				t.Key = overrideKey(p.rules.options.KeyPrefix, a.limit, d.Entries, p.query.Refused)
			} else {
				t.Key = m.rule.key(p.rules.options.KeyPrefix, a.limit, d.Entries, p.query.Refused)
			}
			a.take = r.Add(t)
		}
	}
	return r
}

// queue is the burst with which a leaky bucket takes a request of this cost when what is in it before leaks within the delay. Each
// request that waits has put at least one into the bucket, so the burst also bounds how many wait.
func (p *plan) queue(l bucket.Limit, delay int64, cost uint64) int64 {
	ahead := delay * l.Requests / l.Window // a MaxDelay is at most a minute, so the product fits
	if most := p.limiter.cfg.MaxHeld; most > 0 {
		ahead = min(ahead, most)
	}
	return min(l.Burst, ahead+int64(min(cost, uint64(l.Burst))))
}

// cost says what a descriptor takes: its own hits before those of the request, an explicit 0 is a peek.
func (p *plan) cost(d *descriptors.Descriptor, l *RuleLimit) bucket.Take {
	hits := max(1, p.query.Hits)
	if d.Hits != nil {
		hits = *d.Hits
	}
	if d.Negative {
		return bucket.Take{Refund: hits}
	}
	t := bucket.Take{Cost: hits}
	switch l.CountDenied {
	case CountAll:
		t.CountDenied = true
	case CountExplicit:
		t.CountDenied = d.Hits != nil && !p.query.Beforehand || p.limiter.cfg.Strict
	case CountNone:
	}
	if hits == 0 && !p.limiter.cfg.Strict {
		t.Need = 1
	}
	return t
}

// role is that of a rule, or of an override when the rule is nil.
func (p *plan) role(r *Rule) bucket.Role {
	switch {
	case r != nil && r.Shadow:
		return bucket.Shadow
	case r != nil && r.Quota || p.limiter.cfg.Quota:
		return bucket.Quota
	}
	return bucket.Enforce
}

// quotasCanDeny is false when one quota passes whatever the store says, since quotas deny together only: a quota in shadow
// mode, and where every descriptor is a quota (QUOTA_MODE) one that no limit applies to. So it is at envoyproxy/ratelimit.
func (p *plan) quotasCanDeny() bool {
	for i := range p.matches {
		m := &p.matches[i]
		unlimited := m.rule != nil && m.rule.Unlimited
		if p.limiter.cfg.Quota && len(m.limits) == 0 && !unlimited {
			return false
		}
		if m.rule != nil && m.rule.Shadow && (m.rule.Quota || p.limiter.cfg.Quota) && len(m.limits) > 0 {
			return false
		}
	}
	return true
}

// limits is how many limits apply, over all descriptors.
func (p *plan) limits() int {
	n := 0
	for i := range p.matches {
		n += len(p.matches[i].limits)
	}
	return n
}
