package ratelimit

import (
	"math/bits"
	"sync"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// own is the limit that a credential brings in place of one of the rule, at most as much as that allows. Its buckets
// are the rule's as long as algorithm and window are. There are as many as the operator gives out different ones.
func (r *Rule) own(l *RuleLimit, own LimitSpec) *RuleLimit {
	if made, ok := l.own.Load(own); ok {
		return made.(*RuleLimit)
	}
	made, _ := l.own.LoadOrStore(own, r.makeOwn(l, own))
	return made.(*RuleLimit)
}

// makeOwn bounds the own limit by the rate and the burst that the rule's limit allows. Without an algorithm of its own
// it has that of the rule, or the counter if it is too large for that. One that cannot be counted at all is ignored:
// who gives out limits checks them.
func (r *Rule) makeOwn(l *RuleLimit, own LimitSpec) *RuleLimit {
	if own.Algorithm == 0 {
		own.Algorithm = l.chosen
	}
	if !own.Algorithm.HasBurst() {
		own.Burst = 0
	}
	limit, err := own.Bucket()
	if err != nil && own.Algorithm == bucket.SlidingWindowLog {
		own.Algorithm = bucket.SlidingWindowCounter
		limit, err = own.Bucket()
	}
	if err != nil {
		return l
	}
	limit.Requests = min(limit.Requests, atMost(l, limit.Window))
	if limit.Algorithm.HasBurst() {
		limit.Burst = max(1, min(limit.Burst, max(l.OverrideMax, l.Burst)))
	}
	if limit.Check() != nil {
		return l
	}
	made := *l
	made.Limit, made.Unit, made.UnitMultiplier = limit, own.Unit, uint32(max(1, own.Multiplier)) // it fits: see LimitSpec
	made.MaxDelay = 0
	made.identity = string(identity(r.Domain, r.path, limit)) // made.rule stays: to a store, its buckets are the rule's
	made.own = new(sync.Map)
	return &made
}

// atMost is how many requests in a window are at the rate that the limit allows at most: ⌊OverrideMax·window/Window⌋.
func atMost(l *RuleLimit, window int64) int64 {
	hi, lo := bits.Mul64(uint64(l.OverrideMax), uint64(window))
	quotient, _ := bits.Div64(hi, lo, uint64(l.Window)) // below 2^64: a window has fewer than 2^51 µs and at least 10^6
	return int64(min(quotient, bucket.MaxRequests))
}
