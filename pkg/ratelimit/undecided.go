package ratelimit

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// retryUndecided is the wait of a request that a policy denies because the store cannot decide, in µs. It is short, so
// that clients return soon after the store does.
const retryUndecided = 1_000_000

// undecided decides a request that the store could not, by the policies of its limits: deny precedes local, local
// precedes allow. Rules in shadow mode do not count. Requests for the fallback store are added to local.
func (p *plan) undecided(r *bucket.Request, o *bucket.Outcome, local *fallback) {
	if p.limiter.cfg.Strict {
		p.err = o.Err
		p.limiter.countStoreError(o.Err, 0)
		return
	}
	policy := Allow
	for _, a := range p.limits {
		if r.Takes[a.take].Role != bucket.Shadow {
			policy = min(policy, a.limit.OnStoreError)
		}
	}
	p.limiter.countStoreError(o.Err, policy)
	r.Uncertain = errors.Is(o.Err, ErrOutcomeUnknown)
	pass(r, o)
	p.source = FromPolicyAllow
	switch policy {
	case Deny:
		p.deny(o)
	case Local:
		local.add(p, r, o)
	}
}

// pass answers as unused buckets do.
func pass(r *bucket.Request, o *bucket.Outcome) {
	*o = bucket.Outcome{Allowed: true, Decisions: o.Decisions[:0]}
	for i := range r.Takes {
		o.Decisions = append(o.Decisions, bucket.Decision{Allowed: true, Remaining: r.Takes[i].Limit.Capacity()})
	}
}

// deny answers as exhausted buckets do, for limits with the policy deny.
func (p *plan) deny(o *bucket.Outcome) {
	p.source, o.Allowed, o.RetryAfter = FromPolicyDeny, false, retryUndecided
	for _, a := range p.limits {
		if a.limit.OnStoreError == Deny {
			o.Decisions[a.take] = bucket.Decision{
				RetryAfter: retryUndecided, ResetAfter: retryUndecided, NextIn: retryUndecided,
			}
		}
	}
}

// fallback holds the requests of a batch for the fallback store.
type fallback struct {
	requests []bucket.Request
	outcomes []bucket.Outcome
	parts    []localPart // one for each request
}

// localPart links a request of the fallback store to the plan and outcome that it is part of.
type localPart struct {
	plan  *plan
	whole *bucket.Outcome
	index []int // from Request.Split
}

// add adds the takes of a request. Takes with the policy allow pass.
func (f *fallback) add(p *plan, r *bucket.Request, o *bucket.Outcome) {
	passes := make([]bool, len(r.Takes))
	quotaPasses := false
	for _, a := range p.limits {
		if a.limit.OnStoreError == Allow {
			passes[a.take] = true
			quotaPasses = quotaPasses || r.Takes[a.take].Role == bucket.Quota
		}
	}
	part, index := r.Split(func(take int) bool { return !passes[take] })
	for i := range part.Takes {
		if t := &part.Takes[i]; t.Role == bucket.Quota && quotaPasses {
			t.Role = bucket.Shadow // one quota passes, so the others do not deny
		}
	}
	f.requests = append(f.requests, part)
	f.parts = append(f.parts, localPart{p, o, index})
}

// start lets a store decide all requests.
func (f *fallback) start(ctx context.Context, store Store, done func()) {
	f.outcomes = make([]bucket.Outcome, len(f.requests))
	store.Start(context.WithoutCancel(ctx), f.requests, f.outcomes, done)
}

// merge completes the whole outcomes. A request that the store could not decide stays allowed.
func (f *fallback) merge() {
	for i, part := range f.parts {
		if f.outcomes[i].Err == nil {
			part.whole.Merge(&f.outcomes[i], part.index)
			part.plan.source = FromLastKnown
		}
	}
}
