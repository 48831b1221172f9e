package ratelimit

import (
	"context"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// retryUndecided is what a client is told when the policy denies for a store that can not decide: it is asked again at once
// when it is back.
const retryUndecided = 1_000_000

// undecided answers a request that the store could not decide, by the policies of its limits: deny before local before allow.
// A rule in shadow mode has no say.
func (p *plan) undecided(ctx context.Context, r *bucket.Request) Answer {
	policy := Allow
	p.eachTake(func(a appliedLimit) {
		if r.Takes[a.take].Role != bucket.Shadow {
			policy = min(policy, a.limit.OnStoreError)
		}
	})
	p.limiter.countStoreError(r.Err, policy)
	switch policy {
	case Deny:
		p.deny(r)
		return FromPolicyDeny
	case Local:
		if p.local(ctx, r) {
			return FromFallback
		}
	}
	p.allow(r)
	return FromPolicyAllow
}

func (p *plan) eachTake(f func(appliedLimit)) {
	for i := range p.matches {
		for _, a := range p.matches[i].limits {
			f(a)
		}
	}
}

// allow answers as buckets that nobody has used.
func (p *plan) allow(r *bucket.Request) {
	r.Allowed, r.RetryAfter = true, 0
	for i := range r.Takes {
		r.Takes[i].Decision = bucket.Decision{Allowed: true, Remaining: r.Takes[i].Limit.Capacity()}
	}
}

// deny answers as exhausted buckets where the policy says so.
func (p *plan) deny(r *bucket.Request) {
	p.allow(r)
	r.Allowed, r.RetryAfter = false, retryUndecided
	p.eachTake(func(a appliedLimit) {
		if a.limit.OnStoreError == Deny {
			r.Takes[a.take].Decision = bucket.Decision{RetryAfter: retryUndecided, ResetAfter: retryUndecided, NextIn: retryUndecided}
		}
	})
}

// local decides in the fallback store, by the full limits; those with the policy allow are left out. It reports false when that
// store can not decide either, which only a cancelled ctx can bring about.
func (p *plan) local(ctx context.Context, r *bucket.Request) bool {
	inner := &bucket.Request{}
	index := make([]int, len(r.Takes))
	allowed := make([]bool, len(r.Takes))
	quotaAllowed := false
	p.eachTake(func(a appliedLimit) {
		if a.limit.OnStoreError == Allow {
			allowed[a.take] = true
			quotaAllowed = quotaAllowed || r.Takes[a.take].Role == bucket.Quota
		}
	})
	for i := range r.Takes {
		if allowed[i] {
			continue
		}
		t := r.Takes[i]
		if t.Role == bucket.Quota && quotaAllowed {
			t.Role = bucket.Shadow // one quota passes, so that the others do not deny
		}
		index[i] = inner.Add(t)
	}
	p.limiter.cfg.Fallback.Take(context.WithoutCancel(ctx), []*bucket.Request{inner})
	if inner.Err != nil {
		return false
	}
	p.allow(r)
	r.Allowed, r.RetryAfter = inner.Allowed, inner.RetryAfter
	for i := range r.Takes {
		if !allowed[i] {
			r.Takes[i].Decision = inner.Takes[index[i]].Decision
		}
	}
	return true
}
