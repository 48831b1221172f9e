package ratelimit

import (
	"errors"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// retryUndecided is the wait of a request that a policy denies because the store cannot decide, in µs. It is short, so
// that clients return soon after the store does.
const retryUndecided = 1_000_000

// undecided decides a request that the store could not, by the policies of its limits: deny precedes local, local
// precedes allow. Rules in shadow mode do not count. It returns true if the fallback store decides in the next round.
func (p *Plan) undecided(r *bucket.Request, o *bucket.Outcome, rounds *Rounds) bool {
	if p.limiter.cfg.Strict {
		p.err = o.Err
		p.limiter.countStoreError(o.Err, 0)
		for i, a := range p.limits {
			if !p.limiter.dry && (i == 0 || p.limits[i-1].descriptor != a.descriptor) {
				c, hits := p.countersOf(&a)
				c.Failed.Add(hits)
			}
		}
		return false
	}
	policy := Allow
	for _, a := range p.limits {
		if r.Takes[a.take].Role != bucket.Shadow {
			policy = min(policy, a.limit.OnStoreError)
		}
	}
	p.limiter.countStoreError(o.Err, policy)
	r.Uncertain = errors.Is(o.Err, ErrOutcomeUnknown) && !r.Dry
	*o = bucket.Outcome{Allowed: true, Decisions: o.Decisions[:0]} // as unused buckets answer
	for i := range r.Takes {
		o.Decisions = append(o.Decisions, bucket.Decision{Allowed: true, Remaining: r.Takes[i].Capacity()})
	}
	p.decider = FromPolicyAllow
	switch policy {
	case Deny:
		p.deny(o)
	case Local:
		p.takeLocally(r, o, rounds)
		return true
	}
	return false
}

// deny answers as exhausted buckets do, for limits with the policy deny.
func (p *Plan) deny(o *bucket.Outcome) {
	p.decider, o.Allowed, o.RetryAfter = FromPolicyDeny, false, retryUndecided
	for _, a := range p.limits {
		if a.limit.OnStoreError == Deny {
			o.Decisions[a.take] = bucket.Decision{
				RetryAfter: retryUndecided, ResetAfter: retryUndecided, NextIn: retryUndecided,
			}
		}
	}
}

// localPart links the request of the fallback store to the whole request, a part of which it is.
type localPart struct {
	takes []bucket.Take // of the whole request
	whole bucket.Outcome
	index []int // from Request.Split
}

// takeLocally adds the takes of a request to the next round, which the fallback store decides. Takes with the policy
// allow pass. The whole request and its outcome are kept, because their round ends before.
func (p *Plan) takeLocally(r *bucket.Request, o *bucket.Outcome, rounds *Rounds) {
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
	p.local = &localPart{takes: slices.Clone(r.Takes), index: index}
	p.local.whole, *o = *o, bucket.Outcome{}
	p.stage, p.request, rounds.next.local = takingLocally, len(rounds.next.requests), true
	*rounds.next.add() = part
}
