package nearstore

import "github.com/extauthz/extauthz/pkg/ratelimit/bucket"

// confirmedFor is how long after an answer a denial may be based on it, in µs. It bounds the effect of changes that
// this replica cannot notice: refunds by other replicas, buckets that were reset or lost, and steps of Redis's clock.
const confirmedFor = 1_000_000

// denied reports whether Redis would certainly deny the request, whenever within the interval of T it arrived, and
// change nothing. If so, it fills in the outcome. b.known has the buckets. A bucket is over without its holds: nothing
// shows when another replica ends one.
//
// The waits are those of the earliest T by the bucket that is over. A client that waits so long may be denied again,
// but never waits in vain because of this. Other buckets may have been seen before the clock of Redis has stepped.
func (b *exchange) denied(r *bucket.Request, o *bucket.Outcome) bool {
	over, low := false, int64(0)
	for i := range r.Takes {
		t, k := &r.Takes[i], &b.known[i]
		if t.CountDenied || t.Refund > 0 || t.Hold != nil && len(t.Hold.Settles) > 0 {
			return false
		}
		if k.holds != nil && k.holds.expired(k.high(r.At, b.now)) {
			return false // Redis would end it
		}
		if t.Role == bucket.Enforce && !over || t.Role == bucket.Shadow && t.Claims() > 0 {
			fits := !b.isOver(r, i)
			if fits && t.Role == bucket.Shadow {
				return false // it would be charged
			}
			if !fits && t.Role == bucket.Enforce {
				over, low = true, k.low(r.At, b.now)
			}
		}
	}
	if !over || b.asksAlready(r) {
		return false
	}
	for i := range r.Takes {
		k := &b.known[i]
		s := atTheCut(k.base(), k.cut)
		if s == nil {
			s = k.base()
		}
		b.loaded[i] = bucket.Loaded{State: s.Clone()}
		if k.holds != nil {
			b.loaded[i].State.Holds = &bucket.Holds{Others: k.holds.shown}
		}
	}
	r.Decide(low, b.loaded, o)
	o.Origin = bucket.FromDenialCache
	return true
}

// asksAlready reports whether an earlier request of the batch, which will be sent, may change a bucket of this one.
func (b *exchange) asksAlready(r *bucket.Request) bool {
	for i := range b.sentTakes {
		for k := range r.Takes {
			if b.known[k].key == b.sentTakes[i].bucket.key {
				return true
			}
		}
	}
	return false
}

// isOver reports whether a take does certainly not fit.
func (b *exchange) isOver(r *bucket.Request, i int) bool {
	t, k := &r.Takes[i], &b.known[i]
	if !k.found || k.debt != nil || !k.confirmed || k.limit.Requests != t.Limit.Requests {
		return false
	}
	s := atTheCut(k.base(), k.cut)
	if s == nil || s.Fits(&t.Limit, k.high(r.At, b.now), int64(max(t.Claims(), t.Need))) {
		return false
	}
	age := b.now - k.sent()
	if r.At != 0 {
		age = r.At - k.clock
	}
	return age >= 0 && age <= confirmedFor && !k.isSuspect(b.store.shared.Epoch(t)) &&
		b.leaseLeft(r, i) < int64(max(t.Cost, t.Need, 1))
}
