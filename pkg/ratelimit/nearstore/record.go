package nearstore

import (
	"errors"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// record notes what the outcome of a request shows of its buckets.
func (b *batch) record(s *sent, r *bucket.Request, o *bucket.Outcome) {
	asked := b.asked[s.from : s.from+len(r.Takes)]
	b.held = slices.Grow(b.held[:0], len(asked))[:len(asked)]
	for i := range asked {
		b.held[i].Handle = asked[i].bucket
	}
	b.edit(func() {
		for i := range asked {
			a, k := &asked[i], &b.known[i]
			if a.take.Limit.Requests == 0 {
				continue
			}
			if !k.Found {
				k.Limit = a.take.Limit
			}
			k.Unanswered = max(0, k.Unanswered-a.units)
			if o.Err != nil || i >= len(o.Seen) {
				b.failed(a, k, o.Err)
				continue
			}
			seen, d := &o.Seen[i], &o.Decisions[i]
			if r.At == 0 && seen.Clock != 0 {
				b.newest = seen
			}
			b.learn(a, k, &answer{
				Seen: seen, Decision: d, sent: b.store.local(seen.Sent), received: b.store.local(seen.Received),
				admitted: o.Allowed, charged: a.take.Charged(d.Allowed, o.Allowed),
				emptied: a.take.Refund > 0 || !o.Allowed && d.Allowed && len(r.Takes) > 1 && a.take.Role != bucket.Shadow,
			})
		}
	})
}

// failed notes that a take was not answered.
func (b *batch) failed(a *asked, k *known, err error) {
	now := b.store.now()
	if a.catchUp > 0 && k.debt != nil {
		k.flying -= a.catchUp
		if errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			k.uncertain(now+k.Ahead, a.catchUp)
			b.store.counts.uncertain.Add(uint64(a.catchUp))
		}
		b.store.owe(k)
	}
	if a.chunk > 0 {
		k.unleased()
	}
	k.write(now, drained(&k.Limit, &k.State, now+k.Ahead))
}

// uncertain notes units of a debt that Redis may have charged. They are never charged again, but a floor has them. In a
// log, Redis would have them at another time, so that a floor would count them twice.
func (k *known) uncertain(t, units int64) {
	k.unknown += units
	k.Confirmed = false
	if k.Limit.Algorithm != bucket.SlidingWindowLog {
		k.debt.base.Charge(&k.Limit, t, units)
		k.Suspect = true
	}
}

// answer is the answer on one take.
type answer struct {
	*bucket.Seen
	*bucket.Decision
	// sent and received are the times of Seen by the local clock.
	sent, received int64
	// admitted is the verdict on the request, and charged are the units that it has charged the bucket.
	admitted bool
	charged  int64
	// emptied means that the request may have made the bucket emptier: by a refund, or by a charge that was given back. Of
	// two answers at one time, the later one may then show less.
	emptied bool
}

// learn takes over what an answer shows of a bucket.
func (b *batch) learn(a *asked, k *known, w *answer) {
	s := b.store
	if w.Clock == 0 || !w.State.Sound(a.take.Limit.Algorithm) {
		s.stateIgnored(s.now(), "the answer of Redis has a state that no bucket of its algorithm can have")
		b.failed(a, k, nil)
		return
	}
	still := k.owes(w.Clock, s.replicas)
	if a.catchUp > 0 && k.debt != nil {
		k.flying -= a.catchUp
		still = max(0, still-a.catchUp)
		s.counts.caughtUp(a, w)
	}
	b.accept(a, k, w)
	b.lease(a, k, w)
	k.rebase(w.Clock, still, s.replicas)
	rest := w.ResetAfter
	if k.debt != nil || k.Clock != w.Clock {
		rest = drained(&k.Limit, &k.State, w.received+k.Ahead)
	}
	k.write(w.received, rest)
}

// accept makes the state of an answer the base of its bucket, joins it with the base, or ignores it.
func (b *batch) accept(a *asked, k *known, w *answer) {
	suspected := k.isSuspect(b.store.shared.Epoch(a.take))
	older := w.Clock < k.Clock && w.sent < k.received() // sent after that answer, it is newer: the clock has stepped back
	lost := !older && b.proves(a, k, w)
	switch {
	case k.Clock == 0 && k.base().Empty(): // the first answer
		k.Epoch = a.epoch
		k.replace(a, w)
	case suspected && w.Floor != bucket.FloorUnsent && !older:
		b.restored(a, k, w)
	case suspected, lost:
		k.Confirmed = false
		if lost {
			k.Suspect, k.Proved = true, true
			k.keepCharge(a, w)
		}
		k.join(a, w)
	case older:
	case a.epoch < k.Epoch: // perhaps the answer of a server that has lost its state since
		k.join(a, w)
		k.Confirmed = false
	case w.Clock == k.Clock && w.sent < k.received():
		k.join(a, w)
		if w.emptied {
			k.Confirmed = false
		}
	default:
		k.replace(a, w)
	}
}

// proves reports whether an answer proves a loss of state: it shows less than was known when its request was sent, and
// the charge of its take. If another answer has replaced that since, it must also show less than that answer did.
// Otherwise only a refund has come between.
func (b *batch) proves(a *asked, k *known, w *answer) bool {
	return a.take.Refund == 0 && b.lacks(a, w, &a.known, a.cut, w.charged) &&
		(k.Clock == a.clock || b.lacks(a, w, k.base(), k.Cut, 0))
}

// keepCharge adds what a take has charged after a loss of state. To join the states before and after the loss would
// forget it, except in a log, which keeps each charge at its time.
func (k *known) keepCharge(a *asked, w *answer) {
	if l := &a.take.Limit; l.Algorithm != bucket.SlidingWindowLog && w.Clock > k.Clock {
		k.base().Charge(l, w.Clock, w.charged)
	}
}

// restored takes over the answer to a take that carried a floor. Only such an answer ends the suspicion.
func (b *batch) restored(a *asked, k *known, w *answer) {
	joined, overtaken := w.Floor == bucket.FloorJoined, w.sent <= k.Heard // by an answer that was joined
	if joined && a.take.Refund == 0 && b.lacks(a, w, k.base(), k.Cut, w.charged) {
		if k.Cut && !overtaken {
			k.Proved = true // the floor had only a part of the log
		}
		k.join(a, w)
		k.Confirmed, k.Suspect = false, true
		return
	}
	if w.Floor == bucket.FloorUnusable {
		b.store.stateIgnored(w.received, "Redis cannot read the state, or its clock is far from that of Redis")
	}
	if joined && k.Proved {
		b.store.lossNoticed(w.received)
		b.suspects = append(b.suspects, a.take) // it has lost the state of one bucket, so it may have lost others
	}
	k.Epoch = a.epoch
	k.Suspect, k.Proved = false, false
	k.replace(a, w)
	if overtaken {
		k.Confirmed = false
	}
}

// lacks reports whether the answer shows less than a state that the bucket had before, and units charged since. It
// cannot tell after a large step back of the clock, because the bucket has moved with the clock at an unknown time.
func (b *batch) lacks(a *asked, w *answer, s *bucket.State, isCut bool, charged int64) bool {
	l := &a.take.Limit
	if s.Last-w.Clock > bucket.MaxClockStep {
		return false
	}
	shown, before := &b.room[0], &b.room[1]
	*shown, *before = w.State, *s
	if l.Algorithm != bucket.SlidingWindowLog {
		before.Charge(l, w.Clock, charged)
		return shown.Absorb(l, before, w.Clock)
	}
	if isCut || w.Cut {
		low := atTheCut(s, isCut)
		return low != nil && shown.Used(l, w.Clock) < min(low.Used(l, w.Clock), a.capacity())
	}
	if shown.Count > a.capacity() {
		*before = after(s, shown.Grants[0].At) // a counted denial drops the oldest units beyond the limit
	}
	return shown.Absorb(l, before, w.Clock) // the charge of the take has a time of its own, or shares one
}

// after returns the part of a log that is newer than a time.
func after(s *bucket.State, t int64) bucket.State {
	c := *s
	for len(c.Grants) > 0 && c.Grants[0].At <= t {
		c.Count -= c.Grants[0].Cost
		c.Grants = c.Grants[1:]
	}
	return c
}

// replace makes the state of an answer the base.
func (k *known) replace(a *asked, w *answer) {
	*k.base(), k.Cut, k.Confirmed = w.State, w.Cut, !w.emptied
	k.date(a, w)
	k.Clock = w.Clock
}

// join adds the state of an answer to the base, which keeps its older clock. Of two logs that are cut, the fuller one
// stays with its clock, because the times of their units are not known.
func (k *known) join(a *asked, w *answer) {
	base, l := k.base(), &a.take.Limit
	switch {
	case !k.Cut && !w.Cut:
		base.Merge(l, &w.State, w.Clock)
		if k.Clock == 0 || w.Clock < k.Clock {
			k.Clock = w.Clock
		}
	case base.Used(l, w.Clock) < w.State.Used(l, w.Clock):
		*base, k.Cut, k.Clock = w.State, w.Cut, w.Clock
	}
	k.date(a, w)
}

// date notes the interval of T by an answer, and the limit by which the state is kept.
func (k *known) date(a *asked, w *answer) {
	k.Limit, k.Ahead, k.Trip = a.take.Limit, w.Clock-w.received, max(0, w.received-w.sent)
	k.Heard = max(k.Heard, w.received)
	if k.debt != nil {
		k.unknown = 0 // the answer shows whether they are charged
	}
}
