package ratelimit

import (
	"math/bits"
	"sync"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// credentialLimit returns the limit of a credential in place of a limit of the rule, bounded by what the rule allows.
// The two share buckets if algorithm and window are equal. It compiles each distinct limit once; operators choose these
// limits.
func (r *Rule) credentialLimit(l *RuleLimit, spec LimitSpec) *RuleLimit {
	if compiled, ok := l.credentialLimits.Load(spec); ok {
		return compiled.(*RuleLimit)
	}
	compiled, _ := l.credentialLimits.LoadOrStore(spec, r.compileCredentialLimit(l, spec))
	return compiled.(*RuleLimit)
}

// compileCredentialLimit bounds the credential's limit by the rate and the burst that the rule's limit allows. The
// default algorithm is that of the rule, or the counter if the limit is too large for it. A limit that cannot be
// counted is ignored, because the source of credentials checks limits.
func (r *Rule) compileCredentialLimit(l *RuleLimit, spec LimitSpec) *RuleLimit {
	if spec.Algorithm == 0 {
		spec.Algorithm = l.chosen
	}
	if !spec.Algorithm.HasBurst() {
		spec.Burst = 0
	}
	limit, err := spec.Bucket()
	if err != nil && spec.Algorithm == bucket.SlidingWindowLog {
		spec.Algorithm = bucket.SlidingWindowCounter
		limit, err = spec.Bucket()
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
	compiled := *l
	compiled.Limit, compiled.Unit = limit, spec.Unit
	compiled.UnitMultiplier = uint32(max(1, spec.Multiplier)) // it fits: see LimitSpec
	compiled.PolicyItem = compiled.policyItem()
	compiled.MaxDelay = 0
	compiled.Lease = (&Limit{Lease: int64(compiled.Lease)}).lease(limit, 0)
	// compiled.rule stays: for a store, the buckets belong to the rule.
	compiled.identity = string(identity(r.Domain, r.path, &compiled))
	compiled.credentialLimits = new(sync.Map)
	return &compiled
}

// atMost returns the requests in a window at the highest allowed rate: ⌊OverrideMax·window/Window⌋.
func atMost(l *RuleLimit, window int64) int64 {
	hi, lo := bits.Mul64(uint64(l.OverrideMax), uint64(window))
	quotient, _ := bits.Div64(hi, lo, uint64(l.Window)) // below 2^64: a window has fewer than 2^51 µs and at least 10^6
	return int64(min(quotient, bucket.MaxRequests))
}
