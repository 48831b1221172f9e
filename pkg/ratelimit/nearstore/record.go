package nearstore

import (
	"errors"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// record notes what the outcome of a request shows of its buckets.
func (b *exchange) record(asked []sentTake, r *bucket.Request, o *bucket.Outcome) {
	b.known = slices.Grow(b.known[:0], len(asked))[:len(asked)]
	for i := range asked {
		b.known[i].handle = asked[i].bucket
	}
	b.edit(func() {
		for i := range asked {
			a, k := &asked[i], &b.known[i]
			if a.take.Limit.Requests == 0 {
				continue
			}
			if !k.found {
				k.limit = a.take.Limit
			}
			k.unanswered = max(0, k.unanswered-a.units)
			if k.holds != nil && a.take.Hold != nil {
				k.holds.settles(a.take, false)
			}
			if o.Err != nil || i >= len(o.Seen) {
				b.failed(a, k, o.Err)
				continue
			}
			seen, d := &o.Seen[i], &o.Decisions[i]
			if r.At == 0 && seen.Clock != 0 {
				b.newest = seen
			}
			holds := seen.State.Holds
			seen.State.Holds = nil // what is known of holds is beside the states
			if a.take.Hold != nil {
				seen.State.Remaining(&a.take.Limit, seen.State.Last) // a table keeps the rate of the limit
			}
			b.learn(a, k, &takeAnswer{
				Seen: seen, Decision: d, sent: b.store.local(seen.Sent), received: b.store.local(seen.Received), holds: holds,
				admitted: o.Allowed, charged: a.take.Charged(d.Allowed, o.Allowed) + settled(a.take),
				emptied: a.take.Refund > 0 || !o.Allowed && d.Allowed && len(r.Takes) > 1 && a.take.Role != bucket.Shadow,
			})
			seen.State.Holds = holds
		}
	})
}

// failed notes that a take was not answered.
func (b *exchange) failed(a *sentTake, k *known, err error) {
	now := b.store.now()
	if a.repays && k.debt != nil {
		k.flying -= a.catchUp
		switch unknown := errors.Is(err, ratelimit.ErrOutcomeUnknown); {
		case !unknown && a.take.Hold != nil:
			h := k.holdsOf(a.take)
			h.ended = append(h.ended, a.take.Hold.Settles...)
		case unknown && a.catchUp > 0:
			k.uncertain(now+k.ahead, a.catchUp)
			b.store.counts.uncertain.Add(uint64(a.catchUp))
		}
		b.store.owe(k)
	}
	if a.chunk > 0 && k.lease != nil {
		// Redis may have charged it, so the next one must be earned again: each lost answer costs the clients of the bucket
		// at most one chunk.
		k.lease.asking, k.lease.pace, k.lease.since, k.lease.used = false, 0, 0, 0
	}
	k.write(now, drained(&k.limit, &k.state, now+k.ahead))
}

// uncertain notes units of a debt that Redis may have charged. They are never charged again, but a floor has them. In a
// log, Redis would have them at another time, so that a floor would count them twice.
func (k *known) uncertain(t, units int64) {
	k.unknown = min(k.unknown+units, 2*bucket.MaxWindowRequests) // MaxReplicas times as much must fit 64 bits
	k.confirmed = false
	if !k.limit.Algorithm.HasGrants() {
		k.debt.base.Charge(&k.limit, t, units)
		if k.holds != nil && k.holds.clean != nil {
			k.holds.clean.Charge(&k.limit, t, units)
		}
		k.suspect = true
	}
}

// takeAnswer is the answer on one take.
type takeAnswer struct {
	*bucket.Seen
	*bucket.Decision
	// sent and received are the times of Seen by the local clock.
	sent, received int64
	// holds are those that the answer shows.
	holds *bucket.Holds
	// admitted is the verdict on the request, and charged are the units that it has charged the bucket.
	admitted bool
	charged  int64
	// emptied means that the request may have made the bucket emptier: by a refund, or by a charge that was given back. Of
	// two answers at one time, the later one may then show less.
	emptied bool
}

// learn takes over what an answer shows of a bucket.
func (b *exchange) learn(a *sentTake, k *known, w *takeAnswer) {
	s := b.store
	if w.Clock == 0 || !w.State.Sound(a.take.Limit.Algorithm) {
		s.stateIgnored(s.now(), "the answer of Redis has a state that no bucket of its algorithm can have")
		b.failed(a, k, nil)
		return
	}
	b.expireUnsent(k, a.take, w.Clock)
	still := k.owes(w.Clock)
	if h := k.holds; h != nil && h.clean != nil {
		*k.base(), h.clean = *h.clean, nil
	}
	if a.catchUp > 0 && k.debt != nil {
		k.flying -= a.catchUp
		still = max(0, still-a.catchUp)
		s.counts.caughtUp.Add(uint64(a.catchUp))
		s.counts.over(a, w, a.catchUp)
	}
	b.accept(a, k, w)
	b.lease(a, k, w)
	k.rebase(w.Clock, still)
	rest := w.ResetAfter
	if k.debt != nil || k.clock != w.Clock {
		rest = drained(&k.limit, &k.state, w.received+k.ahead)
	}
	k.write(w.received, rest)
}

// accept makes the state of an answer the base of its bucket, joins it with the base, or ignores it.
func (b *exchange) accept(a *sentTake, k *known, w *takeAnswer) {
	suspected := k.isSuspect(b.store.shared.Epoch(a.take))
	newer := w.sent >= k.received() || b.follows(a, k, w) // also if the clock has stepped back since
	older := w.Clock < k.clock && !newer
	lost := !older && b.proves(a, k, w)
	if a.take.Hold != nil {
		b.learnHolds(a, k, w, older)
	}
	switch {
	case k.clock == 0 && k.base().Empty(): // the first answer
		k.epoch = a.epoch
		k.replace(a, w)
	case suspected && w.Floor != bucket.FloorUnsent && !older:
		b.restored(a, k, w)
	case suspected, lost:
		k.confirmed = false
		if lost {
			k.suspect, k.proved = true, true
			k.keepCharge(a, w)
		}
		k.join(a, w)
	case older:
	case a.epoch < k.epoch: // perhaps the answer of a server that has lost its state since
		k.join(a, w)
		k.confirmed = false
	case w.Clock == k.clock && !newer:
		k.join(a, w)
		if w.emptied {
			k.confirmed = false
		}
	default:
		k.replace(a, w)
	}
}

// follows reports whether an answer is one of the batch whose earlier answer has shown the base. They are recorded in
// the order in which their requests were decided.
func (b *exchange) follows(a *sentTake, k *known, w *takeAnswer) bool {
	if w.sent != k.sent() || w.received != k.received() {
		return false
	}
	first := 0
	for b.sentTakes[first].bucket.key != a.bucket.key {
		first++
	}
	return &b.sentTakes[first] != a
}

// proves reports whether an answer proves a loss of state: it shows less than was known when its request was sent, and
// the charge of its take. If another answer has replaced that since, it must also show less than that answer did.
// Otherwise only a refund has come between.
func (b *exchange) proves(a *sentTake, k *known, w *takeAnswer) bool {
	return a.take.Refund == 0 && b.lacks(a, w, &a.known, a.cut, w.charged) &&
		(k.heard == a.heard || b.lacks(a, w, k.base(), k.cut, 0))
}

// keepCharge adds what a take has charged after a loss of state. To join the states before and after the loss would
// forget it, except in a log, which keeps each charge at its time.
func (k *known) keepCharge(a *sentTake, w *takeAnswer) {
	if l := &a.take.Limit; !l.Algorithm.HasGrants() && w.Clock > k.clock {
		k.base().Charge(l, w.Clock, w.charged)
	}
}

// restored takes over the answer to a take that carried a floor. Only such an answer ends the suspicion.
func (b *exchange) restored(a *sentTake, k *known, w *takeAnswer) {
	joined, overtaken := w.Floor == bucket.FloorJoined, w.sent <= k.heard // by an answer that was joined
	if joined && a.take.Refund == 0 && b.lacks(a, w, k.base(), k.cut, w.charged) {
		if k.cut && !overtaken {
			k.proved = true // the floor had only a part of the log
		}
		k.join(a, w)
		k.confirmed, k.suspect = false, true
		return
	}
	if w.Floor == bucket.FloorUnusable {
		b.store.stateIgnored(w.received, "Redis cannot read the state, or its clock is far from that of Redis")
	}
	if joined && k.proved {
		b.store.lossNoticed(w.received)
		b.suspects = append(b.suspects, a.take) // it has lost the state of one bucket, so it may have lost others
	}
	k.epoch = a.epoch
	k.suspect, k.proved = false, false
	k.replace(a, w)
	if overtaken {
		k.confirmed = false
	}
}

// lacks reports whether the answer shows less than a state that the bucket had before, and units charged since. It
// cannot tell after a large step back of the clock, because the bucket has moved with the clock at an unknown time.
// After a small one, Redis may have charged the bucket before the time of the state, so the charge is left out.
func (b *exchange) lacks(a *sentTake, w *takeAnswer, s *bucket.State, isCut bool, charged int64) bool {
	l := &a.take.Limit
	if s.Last-w.Clock > bucket.MaxClockStep {
		return false
	}
	shown, before := &b.room[0], &b.room[1]
	*shown, *before = w.State, *s
	if !l.Algorithm.HasGrants() {
		if s.Last <= w.State.Last {
			before.Charge(l, w.Clock, charged)
		}
		if l.Algorithm.HasBurst() {
			before.Count = max(0, before.Count-1) // another limit may have rounded the debt up when the state was read
		}
		return shown.Merge(l, before, w.Clock)
	}
	if isCut || w.Cut {
		low := atTheCut(s, isCut)
		return low != nil && shown.Used(l, w.Clock) < min(low.Used(l, w.Clock), a.capacity())
	}
	if shown.Count > a.capacity() {
		*before = after(s, shown.Grants[0].At) // a counted denial drops the oldest units beyond the limit
	}
	return shown.Merge(l, before, w.Clock) // the charge of the take has a time of its own, or shares one
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
func (k *known) replace(a *sentTake, w *takeAnswer) {
	*k.base(), k.cut, k.confirmed = w.State, w.Cut, !w.emptied
	k.date(a, w)
	k.clock = w.Clock
}

// join adds the state of an answer to the base, which keeps its older clock. Of two logs that are cut, the fuller one
// stays with its clock, because the times of their units are not known.
func (k *known) join(a *sentTake, w *takeAnswer) {
	base, l := k.base(), &a.take.Limit
	switch {
	case !k.cut && !w.Cut:
		shown := w.State
		base.Merge(l, &shown, w.Clock)
		if k.clock == 0 || w.Clock < k.clock {
			k.clock = w.Clock
		}
	case base.Used(l, w.Clock) < w.State.Used(l, w.Clock):
		*base, k.cut, k.clock = w.State, w.Cut, w.Clock
	}
	k.date(a, w)
}

// date notes the interval of T by an answer, and the limit by which the state is kept.
func (k *known) date(a *sentTake, w *takeAnswer) {
	k.limit, k.ahead, k.trip = a.take.Limit, w.Clock-w.received, max(0, w.received-w.sent)
	k.heard = max(k.heard, w.received)
	if k.debt != nil {
		k.unknown = 0 // the answer shows whether they are charged
	}
}
