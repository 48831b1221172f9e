package nearstore

import (
	"cmp"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// floorHolds is the most holds that a floor has, and the most that a catch-up ends.
const floorHolds = 1000

// holdings is what is known of the holds of a bucket. The holds that this replica has reserved are known by id. Redis
// shows only the sum of all. One of its own holds that another replica has settled counts as its own until it expires.
type holdings struct {
	// own are the holds that Redis has and this replica has reserved.
	own bucket.Holds
	// unsent are those that were reserved here, and that no answer has shown to be in Redis. Each of their units counts
	// for every replica, like a charge without Redis.
	unsent bucket.Holds
	// sent means that a floor with unsent holds was sent.
	sent bool
	// shown is the sum of all holds in Redis, without those that have ended here since. Holds of unknown outcome are in
	// it.
	shown bucket.SomeHolds
	// ended are holds that have ended here and may still be in Redis: the settlements without cost that end them there.
	ended []bucket.HoldCost
	// ending are the ids of settlements and undos on the wire. A floor that overtakes one must not bring its hold back.
	ending []bucket.HoldID
	// clean is the base without what was charged here for holds that expired: Redis charges that itself. It is nil if
	// nothing was.
	clean *bucket.State
	// ttl is that of the last take.
	ttl int64
}

// number returns how many holds are remembered by id.
func (h *holdings) number() int64 { return h.own.Number() + h.unsent.Number() + int64(len(h.ended)) }

func (h *holdings) empty() bool {
	return h.number() == 0 && h.shown.Number == 0 && h.clean == nil && len(h.ending) == 0
}

// owed reports whether Redis has not seen all that began or ended here.
func (h *holdings) owed() bool { return h != nil && (h.unsent.Number() > 0 || len(h.ended) > 0) }

// expired reports whether one of the holds in Redis has certainly or probably expired at a time of T.
func (h *holdings) expired(at int64) bool {
	return h.own.Expired(at) || h.shown.Number > 0 && h.shown.Until <= at
}

// others returns the sum of the holds of other replicas.
func (h *holdings) others() bucket.SomeHolds {
	o := h.shown
	o.Units, o.Number = max(0, o.Units-h.own.Units()), max(0, o.Number-h.own.Number())
	switch {
	case o.Units > 0:
		o.Number = max(1, o.Number) // so that they expire
	case o.Number == 0:
		o.Until = 0
	}
	return o
}

// units returns the units of all holds, those of unsent ones n times.
func (h *holdings) units(n int64) int64 {
	if h == nil {
		return 0
	}
	return h.others().Units + h.own.Units() + n*h.unsent.Units()
}

// counted returns the holds that a decision without Redis counts. One without an id has the units on the wire, and
// those that unsent holds count for other replicas.
func (k *known) counted(until int64) *bucket.Holds {
	all, extra := new(bucket.Holds), k.unanswered
	if h := k.holds; h != nil {
		all = h.own.Clone()
		all.Others = h.others()
		for _, c := range h.unsent.Live() {
			all.Add(c)
		}
		if k.debt != nil {
			extra += (k.replicas - 1) * h.unsent.Units()
		}
	}
	if extra > 0 {
		all.Add(bucket.HoldCost{Cost: uint64(extra), Expires: until})
	}
	return all
}

// floor sets the holds of a floor.
func (h *holdings) floor(f *bucket.Floor) {
	if f.State.Holds = nil; h == nil {
		return
	}
	f.Unsent, h.sent = h.newest(&h.unsent, floorHolds), h.sent || h.unsent.Number() > 0
	f.State.Holds = h.newest(&h.own, floorHolds-int(f.Unsent.Number()))
}

// newest returns the holds that expire last: another replica has more probably settled the others.
func (h *holdings) newest(holds *bucket.Holds, most int) *bucket.Holds {
	live := slices.DeleteFunc(holds.Live(), func(c bucket.HoldCost) bool { return slices.Contains(h.ending, c.ID) })
	f := new(bucket.Holds)
	for _, c := range live[max(0, len(live)-most):] {
		f.Add(c)
	}
	return f
}

// repay returns what a catch-up asks of holds. It ends those that have ended here: once, because another hold may begin
// under an id.
func (h *holdings) repay(hold *bucket.Hold) *bucket.Hold {
	repaid := hold.Terms()
	if h != nil && hold != nil {
		n := min(len(h.ended), floorHolds)
		repaid.Settles, h.ended = h.ended[:n:n], h.ended[n:]
	}
	return repaid
}

// settled returns the units that the settlements of a take charge.
func settled(t *bucket.Take) int64 {
	if t.Hold == nil || t.Limit.Algorithm.Windowless() {
		return 0
	}
	return t.Hold.Settled(2*t.Limit.Capacity() + 1)
}

// full reports whether no further hold of a bucket is remembered by id. The table counts at most 65,535 of a bucket.
func (s *Store) full(h *holdings) bool { return s.table.Holds() >= s.maxHolds || h.number() >= 1<<16-2 }

// shown returns the base without charges for holds that expired here.
func (k *known) shown() *bucket.State {
	if k.holds != nil && k.holds.clean != nil {
		return k.holds.clean
	}
	return k.base()
}

// holdsOf returns what is known of the holds of a take's bucket.
func (k *known) holdsOf(t *bucket.Take) *holdings {
	if k.holds == nil {
		k.holds = new(holdings)
	}
	k.holds.ttl = t.Hold.TTL
	return k.holds
}

// end removes the hold that a settlement or an undo ends. It reports whether Redis may have it. A settlement of a hold
// that is not known by id takes one out of the sum of the others. Its units go with it if all have 1 unit or it is the
// only one. Otherwise they stay until the latest of the others has expired.
func (h *holdings) end(c bucket.HoldCost) (inRedis bool) {
	before := h.own.Units()
	if h.own.Remove(c.ID, c.Expires) {
		h.less(before-h.own.Units(), 1)
		return true
	}
	if h.unsent.Remove(c.ID, c.Expires) {
		return h.sent
	}
	if o := h.others(); c.Expires == 0 && o.Number > 0 {
		if o.Number > 1 && o.Number < o.Units { // the units of one of several are not known
			o.Units = 0
		}
		h.less(o.Units/o.Number, 1)
	}
	return true
}

// less takes holds out of the sum that Redis has shown.
func (h *holdings) less(units, number int64) {
	if h.shown.Number -= number; h.shown.Number <= 0 {
		h.shown = bucket.SomeHolds{}
		return
	}
	h.shown.Units = max(0, h.shown.Units-units)
}

// settles notes that the settlements of a take begin or end their way to Redis.
func (h *holdings) settles(t *bucket.Take, begin bool) {
	for _, c := range t.Hold.Settles {
		if begin {
			h.ending = append(h.ending, c.ID)
		} else if i := slices.Index(h.ending, c.ID); i >= 0 {
			h.ending = slices.Delete(h.ending, i, i+1)
		}
	}
}

// learnHolds takes over what an answer shows of holds. older means that the sum of a newer answer is known.
func (b *exchange) learnHolds(a *sentTake, k *known, w *takeAnswer, older bool) {
	reserved := w.Held.Until != 0 && (w.admitted || a.take.Role == bucket.Shadow)
	if k.holds == nil && w.holds.Number() == 0 && !reserved {
		return
	}
	h := k.holdsOf(a.take)
	if w.Floor == bucket.FloorJoined || w.Floor == bucket.FloorVoided { // a note of a refund voids no holds
		joined := h.own.Units()
		for _, c := range a.take.Floor.Unsent.Live() {
			if h.unsent.Remove(c.ID, c.Expires) {
				h.own.Add(c)
			}
		}
		b.store.counts.over(a, w, h.own.Units()-joined)
		h.sent = h.sent && h.unsent.Number() > 0
	}
	for _, c := range a.take.Hold.Settles {
		_ = h.own.Remove(c.ID, c.Expires) || h.unsent.Remove(c.ID, c.Expires)
	}
	if reserved {
		for _, c := range a.take.Hold.Reserves {
			if c.Expires = w.Held.Until; c.Cost > 0 && !b.store.full(h) {
				h.own.Add(c)
			}
		}
	}
	if !older {
		x := max(w.Clock, w.State.Last)
		h.own.Expire(x, x+a.take.Hold.TTL)
		h.shown = bucket.SomeHolds{Units: w.holds.Units(), Number: w.holds.Number(), Until: w.holds.Until()}
	}
}

// hold carries out what take i of a request that was decided here asks of holds. It reports whether Redis must learn of
// it, or a settlement charges.
//
// A reserve of unknown outcome is not an own hold: Redis may have it until another time, so a floor would add a second
// one. It counts with the holds of others. A settlement of unknown outcome is not sent again.
func (b *exchange) hold(r *bucket.Request, i int, d *bucket.Decision) bool {
	t, k := &r.Takes[i], &b.known[i]
	if len(t.Hold.Settles) == 0 && d.Held.Until == 0 {
		return false
	}
	h := k.holdsOf(t)
	for _, c := range t.Hold.Settles {
		inRedis := h.end(c)
		if c.Cost = 0; inRedis && (c.Expires != 0 || !r.Uncertain) && !b.store.full(h) {
			c.Expires = cmp.Or(c.Expires, bucket.EndedBefore)
			h.ended = append(h.ended, c)
		}
	}
	for _, c := range t.Hold.Reserves {
		switch c.Expires = d.Held.Until; {
		case c.Cost == 0 || c.Expires == 0:
		case r.Uncertain:
			h.shown.Units, h.shown.Number = h.shown.Units+int64(c.Cost), h.shown.Number+1
			h.shown.Until = max(h.shown.Until, c.Expires)
			b.store.counts.uncertain.Add(c.Cost)
		default:
			h.unsent.Add(c)
		}
	}
	return true
}

// expireHolds ends the holds that have expired at a time of T. Redis charges those that it has itself, so they are
// charged to base and near alike, and are not owed.
func (b *exchange) expireHolds(k *known, t *bucket.Take, at int64) {
	h := k.holds
	if h == nil || t.Hold == nil || t.Limit.Requests == 0 {
		return
	}
	b.expireUnsent(k, t, at)
	latest := at + t.Hold.TTL + bucket.MaxClockStep // the clock of Redis may be ahead, and the bucket ahead of that
	expired, _ := h.own.Expire(at, latest)
	for _, c := range expired {
		h.less(int64(c.Cost), 1)
	}
	h.shown.Until = min(h.shown.Until, latest)
	if o := h.others(); o.Number > 0 && o.Until <= at {
		expired = append(expired, bucket.HoldCost{Cost: uint64(o.Units), Expires: o.Until})
		h.less(o.Units, o.Number)
	}
	if len(expired) == 0 {
		return
	}
	if h.clean == nil && !t.Hold.Release {
		clean := *k.base()
		h.clean = &clean
	}
	for _, c := range expired {
		if k.debt != nil {
			k.chargeExpired(&k.debt.base, t, c, 1)
		}
		k.chargeExpired(&k.state, t, c, 1)
	}
	k.write(b.now, drained(&k.limit, &k.state, at))
}

// expireUnsent ends the unsent holds that have expired at a time of T. Redis does not have them, so they are owed.
func (b *exchange) expireUnsent(k *known, t *bucket.Take, at int64) {
	if k.holds == nil || t.Hold == nil || k.debt == nil {
		return
	}
	expired, _ := k.holds.unsent.Expire(at, at+t.Hold.TTL+bucket.MaxClockStep)
	for _, c := range expired {
		k.chargeExpired(&k.state, t, c, k.replicas)
		if k.holds.sent && !t.Hold.Release {
			b.store.counts.uncertain.Add(c.Cost) // Redis may have it, and charge it itself
		}
	}
}

// chargeExpired charges a state n times for a hold that has expired, unless its limit releases it.
func (k *known) chargeExpired(s *bucket.State, t *bucket.Take, c bucket.HoldCost, n int64) {
	if t.Hold.Release {
		return
	}
	*s = s.Clone() // nothing changes the Grants of known in place
	limit := roomFor(n*int64(c.Cost), t.Limit, s, c.Expires)
	s.ChargeAt(&limit, c.Expires, n*int64(c.Cost))
}

// LiveHolds returns by Take.Rule the sums of the live holds of the buckets that are remembered.
func (s *Store) LiveHolds() map[uint64]bucket.SomeHolds {
	sums, t := map[uint64]bucket.SomeHolds{}, s.now()+s.ahead.Load()
	s.table.EachExtra(func(rule uint64, x extra) {
		if h := x.holds; h != nil {
			others := bucket.Holds{Others: h.others()}
			sums[rule] = sums[rule].Plus(others.At(t)).Plus(h.own.At(t)).Plus(h.unsent.At(t))
		}
	})
	return sums
}
