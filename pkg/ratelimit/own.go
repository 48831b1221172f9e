package ratelimit

import (
	"math/bits"
	"sync"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// own returns the limit of a credential in place of a limit of the rule, bounded by what the rule allows. The two share
// buckets if algorithm and window are equal. It compiles each distinct limit once; operators choose these limits.
func (r *Rule) own(l *RuleLimit, own LimitSpec) *RuleLimit {
	if made, ok := l.own.Load(own); ok {
		return made.(*RuleLimit)
	}
	made, _ := l.own.LoadOrStore(own, r.makeOwn(l, own))
	return made.(*RuleLimit)
}

// makeOwn bounds the credential's limit by the rate and the burst that the rule's limit allows. The default algorithm
// is that of the rule, or the counter if the limit is too large for it. A limit that cannot be counted is ignored,
// because the source of credentials checks limits.
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
	made.identity = string(identity(r.Domain, r.path, limit)) // made.rule stays: for a store the buckets are the rule's
	made.own = new(sync.Map)
	return &made
}

// atMost returns the requests in a window at the highest allowed rate: ⌊OverrideMax·window/Window⌋.
func atMost(l *RuleLimit, window int64) int64 {
	hi, lo := bits.Mul64(uint64(l.OverrideMax), uint64(window))
	quotient, _ := bits.Div64(hi, lo, uint64(l.Window)) // below 2^64: a window has fewer than 2^51 µs and at least 10^6
	return int64(min(quotient, bucket.MaxRequests))
}
