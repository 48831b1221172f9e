package nearstore

import (
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// lease has units of a bucket that Redis has charged in advance, so that this replica decides the next takes without
// Redis. A bucket has one if its limit has a lease and Redis has charged it lately. If the process dies, the units that
// are left stay charged, at most one chunk (Take.Lease).
//
// Units of a window end with it, so a lease admits no more than the limit. Those of a bucket end as it leaks: see left.
type lease struct {
	units int64
	// limit is what they were charged by, and granted the state that the answer showed.
	limit   bucket.Limit
	granted bucket.State
	// used are the units that were admitted here since the time since, of T. The chunk before took the time pace.
	used, since, pace int64
	// refused is the time of T before which no chunk fits.
	refused int64
	// asking means that a chunk is on the wire.
	asking bool
}

// slowClock is the share by which the local clock may be slower than that of Redis, as a shift: a thousandth.
const slowClock = 10

// latest returns the latest T. A lease may be older than a denial, so drift alone is too little.
func (k *known) latest(at, now int64) int64 {
	if at != 0 {
		return at
	}
	return k.high(at, now) + max(0, now-k.received())>>slowClock
}

// left returns the units that the take can use, at the latest T.
//
// A leaky bucket forgets a charge while it leaks. A unit that is used after that would pass in addition to what has
// leaked. So no more units are left than the bucket would hold if it had only leaked since the charge. With several
// leases that is enough: the bucket holds at least that of the oldest one, and all units of the later ones.
func (l *lease) left(t *bucket.Take, latest int64) int64 {
	switch {
	case l == nil || l.units == 0 || t.Lease == 0 || l.limit != t.Limit:
		return 0
	case !t.Limit.Algorithm.HasBurst():
		if begin, end := t.Limit.WindowAt(latest); l.granted.Last < begin || l.granted.Last >= end {
			return 0
		}
		return l.units
	}
	held := l.granted.Used(&t.Limit, latest) - 1 // rounded down
	return max(0, min(l.units, held))
}

// count notes units of a take that were admitted at a time of T.
func (l *lease) count(t *bucket.Take, at int64) {
	if l.since == 0 {
		l.since = at
	}
	if l.used += int64(t.Cost); l.used >= int64(t.Lease) {
		l.pace, l.since, l.used = max(1, at-l.since), at, 0
	}
}

// isWorth reports whether the units of a chunk will probably be used before they end, at the pace of the last chunk.
// The state of the bucket is that before the take.
func (l *lease) isWorth(t *bucket.Take, s *bucket.State, latest int64) bool {
	if l.asking || l.pace == 0 || latest < l.refused {
		return false
	}
	_, end := t.Limit.WindowAt(latest)
	life := float64(end - latest)
	if t.Limit.Algorithm.HasBurst() {
		life = float64(s.Used(&t.Limit, latest)+int64(t.Cost+t.Lease)) * float64(t.Limit.Window) / float64(t.Limit.Requests)
	}
	return float64(l.pace) <= life && float64(latest-l.since) <= life
}

// fromLease answers a request whose takes are all covered by leases. b.known has the buckets. The decisions are those
// of the last known states at the earliest T, so what other replicas have charged since is not in them.
func (b *exchange) fromLease(r *bucket.Request, o *bucket.Outcome) bool {
	if !isLeased(r) {
		return false
	}
	for i := range r.Takes {
		if b.leaseLeft(r, i) < max(1, int64(max(r.Takes[i].Cost, r.Takes[i].Need))) {
			return false
		}
	}
	b.shown.Takes = append(b.shown.Takes[:0], r.Takes...)
	earliest := int64(math.MaxInt64)
	for i := range r.Takes {
		k := &b.known[i]
		earliest = min(earliest, k.low(r.At, b.now))
		b.loaded[i] = bucket.Loaded{State: k.base().Clone()}
		b.shown.Takes[i].Cost, b.shown.Takes[i].Need = 0, 0
	}
	b.shown.Decide(earliest, b.loaded, o)
	for i := range r.Takes {
		t, l, d := &r.Takes[i], b.known[i].lease, &o.Decisions[i]
		left := b.leaseLeft(r, i) - int64(t.Cost)
		d.Allowed, d.RetryAfter, d.Delay = true, 0, 0
		d.Remaining = min(t.Limit.Capacity(), d.Remaining+left)
		if !r.Dry {
			l.units = left
			l.count(t, earliest)
			b.store.counts.leaseUsed.Add(t.Cost)
		}
	}
	o.Allowed, o.RetryAfter, o.Origin = true, 0, bucket.FromLease
	return true
}

// isLeased reports whether all takes have a lease and none refunds or has holds. Only such a request can be answered
// from leases.
func isLeased(r *bucket.Request) bool {
	for i := range r.Takes {
		if t := &r.Takes[i]; t.Lease == 0 || t.Refund > 0 || t.Limit.Requests == 0 || t.Hold != nil {
			return false
		}
	}
	return len(r.Takes) > 0
}

// leaseLeft returns the units that take i can use now.
func (b *exchange) leaseLeft(r *bucket.Request, i int) int64 {
	k := &b.known[i]
	return k.lease.left(&r.Takes[i], k.latest(r.At, b.now))
}

// renew adds a request for each bucket that fills its lease up to a chunk, where that is worth it. It is charged only
// if it fits, after the takes of the caller. What is left of a bucket that leaks is given up instead: see left.
func (b *exchange) renew(r *bucket.Request) {
	if !isLeased(r) {
		return
	}
	for i := range r.Takes {
		t, k := &r.Takes[i], &b.known[i]
		if k.lease == nil || !k.lease.isWorth(t, k.base(), k.latest(r.At, b.now)) {
			continue
		}
		missing := int64(t.Lease)
		if !t.Limit.Algorithm.HasBurst() {
			missing -= b.leaseLeft(r, i)
		}
		if missing <= 0 {
			continue
		}
		k.lease.asking = true
		chunk := bucket.Take{
			Key: t.Key, Rule: t.Rule, Limit: t.Limit, Lease: t.Lease, Cost: uint64(missing), Role: bucket.Shadow,
		}
		b.addOwn(r.At, chunk, k, sentTake{chunk: missing})
	}
}

// lease notes what an answer means for the lease of a bucket.
func (b *exchange) lease(a *sentTake, k *known, w *takeAnswer) {
	switch {
	case a.take.Lease == 0:
	case a.chunk == 0:
		if w.charged > 0 && w.admitted {
			if k.lease == nil {
				k.lease = new(lease)
			}
			k.lease.count(a.take, w.Clock)
		}
	case k.lease == nil: // it was evicted meanwhile
	default:
		k.lease.asking = false
		switch {
		case w.RetryAfter == bucket.Never:
			k.lease.refused = math.MaxInt64
		case w.charged == 0:
			k.lease.refused = w.Clock + w.RetryAfter
		case k.epoch == a.epoch && !k.suspect: // else Redis may have lost the charge
			units := w.charged
			if !a.take.Limit.Algorithm.HasBurst() {
				units += k.lease.left(a.take, max(w.Clock, w.State.Last))
			}
			k.lease.units, k.lease.limit, k.lease.granted = units, a.take.Limit, w.State
			b.store.counts.leaseCharged.Add(uint64(w.charged))
		}
	}
}
