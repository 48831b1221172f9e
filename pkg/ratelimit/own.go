package ratelimit

import (
	"math/bits"
	"sync"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// ownLimits are the limits that credentials bring in place of one of a rule, made once each. They are as many as the operator
// gives out different ones.
type ownLimits struct{ made sync.Map } // OwnLimit -> *RuleLimit

// own is the limit that a credential brings in place of one of the rule, at most as much as that allows. Its buckets are the
// rule's as long as algorithm and window are.
func (r *Rule) own(l *RuleLimit, own OwnLimit) *RuleLimit {
	if made, ok := l.own.made.Load(own); ok {
		return made.(*RuleLimit)
	}
	made, _ := l.own.made.LoadOrStore(own, r.makeOwn(l, own))
	return made.(*RuleLimit)
}

func (r *Rule) makeOwn(l *RuleLimit, own OwnLimit) *RuleLimit {
	multiplier := max(1, own.UnitMultiplier)
	limit := bucket.Limit{
		Algorithm: own.Algorithm, Requests: own.RequestsPerUnit, Window: own.Unit.Micros() * int64(multiplier), Burst: own.Burst,
	}
	if limit.Algorithm == 0 {
		limit.Algorithm = l.Algorithm
	}
	if limit.Window <= 0 || limit.Window > bucket.MaxWindow {
		return l
	}
	if limit.Burst == 0 {
		limit.Burst = limit.Requests
	}
	limit.Requests = min(limit.Requests, atMost(l, limit.Window))
	limit.Burst = max(1, min(limit.Burst, max(l.OverrideMax, l.Burst)))
	if limit.Check() != nil { // whoever gives out limits checks them; one that cannot be counted is none
		return l
	}
	made := *l
	made.Limit.Limit, made.Unit, made.UnitMultiplier = limit, own.Unit, multiplier
	made.MaxDelay = 0
	made.identity = string(identity(r.Domain, r.path, limit)) // made.rule stays: to a store, its buckets are the rule's
	made.own = new(ownLimits)
	return &made
}

// atMost is how many requests in a window are at the rate that the limit allows at most: ⌊OverrideMax·window/Window⌋.
func atMost(l *RuleLimit, window int64) int64 {
	hi, lo := bits.Mul64(uint64(l.OverrideMax), uint64(window))
	quotient, _ := bits.Div64(hi, lo, uint64(l.Window)) // below 2^64: a window has fewer than 2^51 µs and at least 10^6
	return int64(min(quotient, bucket.MaxRequests))
}
