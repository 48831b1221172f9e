package ratelimit

import "sync/atomic"

// Counters count the decisions of one limit. They only grow, and are safe for concurrent use.
type Counters struct {
	// Allowed counts descriptors that fit their limit.
	Allowed Tally
	// Denied counts descriptors over an enforced limit. Its hits are those over the limit.
	Denied Tally
	// ShadowDenied counts descriptors that a rule in shadow mode would have denied. Its hits are those over the limit.
	ShadowDenied Tally
	// Fitting counts hits that would have fit, of descriptors that were over their limit.
	Fitting atomic.Uint64
	// Near counts hits above the share NEAR_LIMIT_RATIO of their limit that fit, or would have fit.
	Near atomic.Uint64
	// Cached counts hits of Denied and ShadowDenied that were denied without the store.
	Cached atomic.Uint64
	// Failed counts hits of requests that a strict limiter has answered with the error of the store.
	Failed atomic.Uint64
	// Undecided counts descriptors that the store could not decide, so that on_store_error decided.
	Undecided atomic.Uint64

	// Settled counts settlements that have ended a hold, Unknown those that have found none. Expired counts holds that
	// have expired, and Undone those whose call has ended before its answer.
	Settled, Unknown, Expired, Undone atomic.Uint64

	holds atomic.Bool  // a limit has holds
	over  atomic.Int64 // the keys in a run of denials, as the sketch has them
}

// HasHolds reports whether they are those of a limit with holds.
func (c *Counters) HasHolds() bool { return c.holds.Load() }

// Tally counts descriptors and their hits. Almost every descriptor has one hit, which costs one addition.
type Tally struct {
	single, others, hitsOfOthers atomic.Uint64
}

// Add counts a descriptor.
func (t *Tally) Add(hits uint64) {
	if hits == 1 {
		t.single.Add(1)
		return
	}
	t.others.Add(1)
	t.hitsOfOthers.Add(hits)
}

// Descriptors returns the number of descriptors.
func (t *Tally) Descriptors() uint64 { return t.single.Load() + t.others.Load() }

// Hits returns the number of their hits.
func (t *Tally) Hits() uint64 { return t.single.Load() + t.hitsOfOthers.Load() }

// count counts the decision on a descriptor with this many hits. Those above the part near of the capacity are near the
// limit. The hits of a peek are 0. Of a denial that was charged (count_denied), all hits are over the limit, because
// the decision does not tell how many would have fit. In strict mode, compare does.
func (c *Counters) count(a *Applied, hits uint64, capacity, near int64) {
	if a.Decision.Allowed {
		c.Allowed.Add(hits)
		if used := capacity - a.Decision.Remaining; used > near {
			c.Near.Add(min(hits, uint64(used-near)))
		}
		return
	}
	left, over := max(uint64(a.Decision.Remaining), uint64(a.left)), &c.Denied
	if a.Shadow {
		over = &c.ShadowDenied
	}
	if left == 0 {
		over.Add(hits)
		return
	}
	fitting := min(hits, left)
	over.Add(hits - fitting)
	c.Fitting.Add(fitting)
	c.Near.Add(min(fitting, uint64(capacity-near)))
}

// Totals are the counters that belong to no rule. They are safe for concurrent use.
type Totals struct {
	// RequestLimits counts the decisions of limits that requests bring, unless a rule with an Override counts them.
	RequestLimits Counters
	// Decided counts requests with a limit, by what decided. It is apart from the fields before and after the totals,
	// which every decision reads: all processors write here.
	Decided [deciders]atomic.Uint64
	// GlobalShadow counts requests over a limit that SHADOW_MODE allowed.
	GlobalShadow atomic.Uint64
	// Invalid counts requests with a QueryError, and those with ErrNoRules.
	Invalid atomic.Uint64
	// NotUndone counts calls that have ended before their answer, and whose holds the store was not asked to remove, or
	// did not.
	NotUndone atomic.Uint64
	// NegativeHolds counts reserves and settlements with is_negative_hits, which is ignored.
	NegativeHolds atomic.Uint64
	// StoreErrors counts requests that the store could not decide, by the policy that decided.
	StoreErrors [Allow + 1]atomic.Uint64
	// UnknownOutcomes counts the requests among StoreErrors that may have been charged anyway.
	UnknownOutcomes atomic.Uint64
}
