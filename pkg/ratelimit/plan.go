package ratelimit

import (
	"fmt"
	"slices"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// plan holds one query while it is decided: the limits that apply and their takes.
type plan struct {
	limiter *Limiter
	rules   *Rules
	query   *Query
	keys    *[]byte // of the batch; the keys of takes are parts of it
	matches []match // one for each descriptor
	// limits are the limits that apply, in the order of their descriptors.
	limits []appliedLimit
	// counted means that the store only counts, and that compare decides (COMPATIBILITY=strict).
	counted bool
	// request is the index of the request in the batch, -1 if no limit applies.
	request int
	// source is what decided; err is set if there is none.
	source Source
	err    error
}

// match is the result of matching one descriptor.
type match struct {
	rule    *Rule // nil if none matched, or if the request brought its limit
	limited bool  // a limit applies
}

type appliedLimit struct {
	limit *RuleLimit
	// descriptor and take are indexes in the query and in the request.
	descriptor, take int
	// uncharged means that the limit fits and is not charged, because another one does not fit (StopWhenOver).
	uncharged bool
}

// begin finds the limits that apply to a query, with an empty plan. keys are those of the batch.
func (p *plan) begin(l *Limiter, q *Query, keys *[]byte) {
	p.limiter, p.rules, p.query, p.keys, p.request = l, q.Rules, q, keys, -1
	p.matches = slices.Grow(p.matches, len(q.Descriptors))[:len(q.Descriptors)]
	if p.rules == nil {
		p.rules = l.cfg.Rules()
	}
	switch {
	case q.Domain == "":
		p.err = ErrNoDomain
	case len(q.Descriptors) == 0:
		p.err = ErrNoDescriptors
	case p.rules == nil:
		p.err = ErrNoRules
	case p.rules.domains[q.Domain] == nil:
		l.totals.UnknownDomain.Add(1)
	default:
		p.err = p.match(p.rules.domains[q.Domain])
	}
	if p.err != nil {
		l.totals.Invalid.Add(1)
	}
}

// release drops all that the plan refers to. It keeps its memory for another query, unless it is large.
func (p *plan) release() {
	*p = plan{matches: texts.Clear(p.matches), limits: texts.Clear(p.limits)}
}

// match finds the rule of each descriptor in the rules of the domain, then drops the limits that others replace.
func (p *plan) match(rules *descriptors.Tree[place]) error {
	var replaced []string
	for i := range p.query.Descriptors {
		d := &p.query.Descriptors[i]
		if d.Limit != nil {
			limit, err := p.rules.requestLimit(p.query.Domain, d.Limit)
			if err != nil {
				return QueryError(fmt.Sprintf("limit of descriptor %d: %v", i, err))
			}
			p.limits = append(p.limits, appliedLimit{limit: limit, descriptor: i})
			continue
		}
		node := rules.Find(d.Entries)
		if node == nil || node.Value.rule == nil {
			p.limiter.totals.Unmatched.Add(1)
			continue
		}
		rule := node.Value.rule
		p.matches[i].rule = rule
		for k := range rule.Limits {
			limit := &rule.Limits[k]
			replaced = append(replaced, limit.Replaces...)
			if p.query.CredentialLimit != nil && limit.OverrideMax > 0 {
				limit = rule.credentialLimit(limit, *p.query.CredentialLimit)
			}
			if !rule.Unlimited {
				p.limits = append(p.limits, appliedLimit{limit: limit, descriptor: i})
			}
		}
	}
	if len(replaced) > 0 {
		p.limits = slices.DeleteFunc(p.limits, func(a appliedLimit) bool {
			return a.limit.Name != "" && slices.Contains(replaced, a.limit.Name)
		})
	}
	for i := range p.limits {
		p.matches[p.limits[i].descriptor].limited = true
	}
	return nil
}

// requestLimit compiles a limit that the request brought: the default algorithm, and a burst equal to its requests. If
// the algorithm cannot count as many requests, the counter decides.
func (r *Rules) requestLimit(domain string, o *descriptors.RequestLimit) (*RuleLimit, error) {
	spec := LimitSpec{
		Requests: int64(o.RequestsPerUnit), Unit: o.Unit, Multiplier: uint64(o.UnitMultiplier),
		Algorithm: r.options.DefaultAlgorithm,
	}
	l, err := spec.Bucket()
	if err != nil { // the log, for example, counts less than the other algorithms
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

// ask adds a take for each limit to the request.
func (p *plan) ask(r *bucket.Request) {
	quotasCanDeny := p.quotasCanDeny()
	p.counted = p.countsOnly()
	for i := range p.limits {
		a := &p.limits[i]
		rule, d := p.matches[a.descriptor].rule, &p.query.Descriptors[a.descriptor]
		t := p.cost(d, a.limit)
		t.Rule, t.Limit = a.limit.rule, a.limit.Limit
		if p.query.Refused {
			t.Rule = ^t.Rule
		}
		if a.limit.MaxDelay > 0 {
			t.Limit.Burst = p.queue(t.Limit, min(a.limit.MaxDelay, p.query.MaxHold), t.Cost)
		}
		t.Role = p.role(rule)
		if t.Role == bucket.Quota && !quotasCanDeny {
			t.Role = bucket.Shadow
		}
		length := len(*p.keys)
		*p.keys = rule.appendKey(*p.keys, p.rules.options.KeyPrefix, a.limit, d.Entries, p.query.Refused)
		t.Key = texts.View((*p.keys)[length:])
		if !p.limiter.cfg.Strict {
			t.Lease = a.limit.Lease
		}
		if p.counted {
			countOnly(&t)
		}
		if a.uncharged {
			t.Cost = 0
		}
		a.take = r.Add(t)
	}
}

// queue returns the burst with which a leaky bucket accepts a request of this cost if its content leaks within the
// delay. Each waiting request has put at least one unit into the bucket, so the burst also bounds how many wait.
func (p *plan) queue(l bucket.Limit, delay int64, cost uint64) int64 {
	ahead := delay * l.Requests / l.Window // a MaxDelay is at most a minute, so the product fits
	if most := p.limiter.cfg.MaxHeld; most > 0 {
		ahead = min(ahead, most)
	}
	return min(l.Burst, ahead+int64(min(cost, uint64(l.Burst))))
}

// hits returns the hits of a descriptor. Its own precede those of the request; an explicit 0 is a peek.
func (p *plan) hits(d *descriptors.Descriptor) uint64 {
	if d.Hits != nil {
		return *d.Hits
	}
	return max(1, p.query.Hits)
}

// cost returns the take of a descriptor.
func (p *plan) cost(d *descriptors.Descriptor, l *RuleLimit) bucket.Take {
	hits := p.hits(d)
	if d.Negative {
		return bucket.Take{Refund: hits}
	}
	t := bucket.Take{Cost: hits}
	if l.CountDenied != nil {
		t.CountDenied = *l.CountDenied
	} else {
		t.CountDenied = d.Hits != nil && !p.query.Beforehand || p.limiter.cfg.Strict
	}
	if hits == 0 && !p.limiter.cfg.Strict {
		t.Need = 1
	}
	return t
}

// role returns the role of a rule, or of a limit that the request brought if the rule is nil.
func (p *plan) role(r *Rule) bucket.Role {
	switch {
	case r != nil && r.Shadow:
		return bucket.Shadow
	case r != nil && r.Quota || p.limiter.cfg.Quota:
		return bucket.Quota
	}
	return bucket.Enforce
}

// quotasCanDeny is false if one quota always passes, because quotas only deny together. Such a quota is in shadow
// mode. With QUOTA_MODE it is also any descriptor to which no limit applies, as in envoyproxy/ratelimit.
func (p *plan) quotasCanDeny() bool {
	for i := range p.matches {
		m := &p.matches[i]
		unlimited := m.rule != nil && m.rule.Unlimited
		if p.limiter.cfg.Quota && !m.limited && !unlimited {
			return false
		}
		if m.rule != nil && m.rule.Shadow && (m.rule.Quota || p.limiter.cfg.Quota) && m.limited {
			return false
		}
	}
	return true
}
