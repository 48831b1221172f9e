package bucket

import (
	"encoding/hex"
	"math"
	"slices"
)

// Hold is what a take of a limit with holds asks of them, and how long they live. A hold is a number of units that are
// set aside in a bucket under an id. It ends when it is settled with the real cost, or when it expires. The units of
// all live holds count as used. The terms of a limit are equal in all its takes.
type Hold struct {
	// TTL is the longest time that a hold lives, in µs. A hold that would live longer, by an earlier TTL or another
	// clock, is cut to it.
	TTL int64
	// Most is the most live holds of a bucket.
	Most int64
	// Release drops the units of a hold that expires. Without it, they are charged at that time.
	Release bool
	// Reserves become holds if the request is allowed; those of a shadow take if the take fits. A cost of 0 holds nothing.
	Reserves []HoldCost
	// Settles end holds and charge their cost in any case, also if the request is denied.
	Settles []HoldCost
}

// HoldID is the id of holds. Several live holds may have one.
type HoldID [16]byte

// String returns the first half of the id in hex, by which logs and commands name its holds.
func (id HoldID) String() string { return hex.EncodeToString(id[:8]) }

// HoldCost is a number of units under an id.
type HoldCost struct {
	ID   HoldID
	Cost uint64
	// Expires is when a live hold expires, in µs since 1970. In Hold.Settles, 0 stands for the hold of the ID that expires
	// first. Any other time is that of a hold that is undone: this hold alone is removed, and nothing is charged.
	// EndedBefore is as 0, for a hold that ended before the request: it has not expired meanwhile.
	Expires int64
}

// EndedBefore is described at HoldCost.Expires.
const EndedBefore = -1

// Held is what a decision tells of the holds of its bucket.
type Held struct {
	// Units and Number are those of all live holds after the decision.
	Units, Number int64
	// Until is when the holds expire that the take has reserved, in µs since 1970; 0 if it has reserved none.
	Until int64
	// Settled is how many of the settlements of the take have ended a hold, Unknown how many have found none, and Expired
	// how many holds had expired before.
	Settled, Unknown, Expired int

	// unrolled is the bucket at the time of its last charge. It is what the store keeps if nothing is charged at the time
	// of the decision: a hold that begins or ends moves no bucket to another time.
	unrolled State
	charged  bool // something is charged or given back at the time of the decision
}

// holdWait is the wait of a take that only holds deny, in µs. When they end is not known.
const holdWait = 1_000_000

// reserved returns the sum of the reserves, and how many of them hold something.
func (h *Hold) reserved() (units uint64, number int64) {
	if h == nil {
		return 0, 0
	}
	for i := range h.Reserves {
		if cost := h.Reserves[i].Cost; cost > 0 {
			units, number = min(units+cost, math.MaxInt64), number+1
		}
	}
	return units, number
}

// Reserves reports whether the take asks for a hold.
func (t *Take) Reserves() bool {
	_, number := t.Hold.reserved()
	return number > 0
}

// Settled returns the sum of the costs that the settlements charge, at most that many.
func (h *Hold) Settled(most int64) (units int64) {
	for i := range h.Settles {
		if c := &h.Settles[i]; c.Expires == 0 {
			units = min(units+int64(min(c.Cost, uint64(most))), most)
		}
	}
	return units
}

// Terms returns the hold of a take that neither reserves nor settles.
func (h *Hold) Terms() *Hold {
	if h == nil {
		return nil
	}
	return &Hold{TTL: h.TTL, Most: h.Most, Release: h.Release}
}

// Undo returns what removes the holds that the take has reserved until a time, 0 if it has reserved none.
func (h *Hold) Undo(until int64) *Hold {
	back := h.Terms()
	if until == 0 {
		return back
	}
	for _, c := range h.Reserves {
		if c.Cost > 0 {
			back.Settles = append(back.Settles, HoldCost{ID: c.ID, Expires: until})
		}
	}
	return back
}

// tooMany reports whether the bucket would have more live holds than the most.
func (h *Hold) tooMany(s *State) bool {
	_, more := h.reserved()
	return more > 0 && s.Holds.Number()+more > h.Most
}

// with returns the hold of two takes of one bucket: the settlements of one id are one, with the sum of their costs.
func (h *Hold) with(other *Hold) *Hold {
	if h == nil {
		return other
	}
	both := *h
	both.Reserves = slices.Concat(h.Reserves, other.Reserves)
	both.Settles = slices.Clone(h.Settles)
	for _, s := range other.Settles {
		same := func(m HoldCost) bool { return m.ID == s.ID && m.Expires == s.Expires }
		if i := slices.IndexFunc(both.Settles, same); i >= 0 && s.Expires == 0 {
			both.Settles[i].Cost += min(s.Cost, math.MaxUint64-both.Settles[i].Cost)
		} else {
			both.Settles = append(both.Settles, s)
		}
	}
	return &both
}

// clamped returns the hold with costs of at most that many units. It does not change h, which takes may share.
func (h *Hold) clamped(most uint64) *Hold {
	above := func(c HoldCost) bool { return c.Cost > most }
	if !slices.ContainsFunc(h.Reserves, above) && !slices.ContainsFunc(h.Settles, above) {
		return h
	}
	c := *h
	c.Reserves, c.Settles = slices.Clone(h.Reserves), slices.Clone(h.Settles)
	for _, costs := range [][]HoldCost{c.Reserves, c.Settles} {
		for i := range costs {
			costs[i].Cost = min(costs[i].Cost, most)
		}
	}
	return &c
}

// expire ends the holds that have expired at the time x of the bucket, and cuts the others to the TTL. It charges the
// units of each at the time at which it expired, but not before the last charge.
func (h *Hold) expire(l *Limit, b *Loaded, x int64, d *Held) {
	if b.State.Holds.Number() == 0 {
		return
	}
	expired, cut := b.State.Holds.Expire(x, x+h.TTL)
	b.Changed, d.Expired = b.Changed || cut || len(expired) > 0, len(expired)
	for i := 0; i < len(expired) && !h.Release; i++ {
		b.State.ChargeAt(l, expired[i].Expires, int64(min(expired[i].Cost, uint64(2*l.Capacity()+1))))
	}
}

// room is Take.room for a take with holds.
func (h *Hold) room(t *Take) int64 {
	reserved, _ := h.reserved()
	return int64(min(max(t.Cost+reserved, t.Need), uint64(2*t.Limit.Capacity()+1)))
}

// judge is Take.judge for a take with holds. It also settles.
func (h *Hold) judge(t *Take, now int64, b *Loaded, d *Decision) {
	need := t.room()
	b.Changed, d.Held = false, new(Held)
	if t.Limit.Requests == 0 {
		d.Allowed = need == 0
		return
	}
	alg := registry[t.Limit.Algorithm].engine
	x := b.State.anchor(now, &b.Changed)
	for i := range h.Settles {
		if c := &h.Settles[i]; c.Expires != 0 && b.State.Holds.Remove(c.ID, max(0, c.Expires)) {
			b.Changed, d.Held.Settled = true, d.Held.Settled+1 // it ended before the request
		}
	}
	h.expire(&t.Limit, b, x, d.Held)
	d.Held.unrolled = b.State
	alg.roll(&t.Limit, &b.State, x)
	if t.Refund > 0 && !b.State.unused() {
		alg.refund(&t.Limit, &b.State, int64(t.Refund), t.ChargedAt)
		b.Changed, d.Held.charged = true, true
	}
	h.settle(&t.Limit, b, d.Held)
	d.Allowed = t.alwaysFits(need) || t.fits(&b.State, need) && (!b.Full || !t.Reserves())
}

// complete is the second half of Request.Decide for a take with holds.
func (h *Hold) complete(t *Take, now int64, b *Loaded, d *Decision, requestAllowed bool, w *waits) {
	h.hold(t, b, d, requestAllowed)
	t.describe(now, &b.State, d, requestAllowed)
	h.describe(&t.Limit, now, &b.State, d)
	if !requestAllowed {
		w.add(t, now, &b.State, d)
	}
	d.Held.keep(&b.State, &t.Limit)
}

// describe completes the decision, which Take.describe has described without holds.
func (h *Hold) describe(l *Limit, now int64, s *State, d *Decision) {
	if l.Requests == 0 {
		return
	}
	units, capacity := s.Holds.Units(), l.Capacity()
	d.Held.Units, d.Held.Number = units, s.Holds.Number()
	d.Remaining = max(0, d.Remaining-units)
	d.ExpireAt = max(d.ExpireAt, h.until(l, s))
	switch {
	case d.Remaining >= capacity:
	case d.Remaining+1+units > capacity: // the holds alone are in the way
		d.NextIn = holdWait
	default:
		d.NextIn = s.Last - now + registry[l.Algorithm].engine.wait(l, s, d.Remaining+1+units)
	}
	if !d.Allowed && d.RetryAfter == 0 && len(h.Reserves) > 0 { // the store has no room: Loaded.Full
		d.RetryAfter = holdWait
	}
}

// settle carries out the settlements of a take, whose bucket has been rolled to its time.
func (h *Hold) settle(l *Limit, b *Loaded, d *Held) {
	for i := range h.Settles {
		c := &h.Settles[i]
		if c.Expires != 0 {
			continue // judge has ended it
		}
		if b.State.Holds.Remove(c.ID, 0) {
			b.Changed = true
			d.Settled++
		} else {
			d.Unknown++
		}
		if c.Cost > 0 {
			registry[l.Algorithm].engine.charge(l, &b.State, int64(c.Cost))
			b.Changed, d.charged = true, true
		}
	}
}

// hold adds the reserves of a take that fits, after the take is charged.
func (h *Hold) hold(t *Take, b *Loaded, d *Decision, requestAllowed bool) {
	d.Held.charged = d.Held.charged || t.Charged(d.Allowed, requestAllowed) != 0
	if !d.Allowed || !requestAllowed && t.Role != Shadow || t.Limit.Requests == 0 {
		return
	}
	for _, c := range h.Reserves {
		if c.Cost == 0 {
			continue
		}
		if b.State.Holds == nil {
			b.State.Holds = new(Holds)
		}
		c.Expires = b.State.Last + h.TTL
		b.State.Holds.Add(c)
		b.State.Holds.Release = h.Release
		b.Changed, d.Held.Until = true, c.Expires
	}
}

// parse reads the numbers of holds that have ended from the beginning of an answer, and returns the rest.
func (d *Held) parse(text string) string {
	var n [3]int64
	for i := range n {
		number, rest, ok := cutNumber(text, ' ')
		if !ok { // a text of a bucket, which begins with a letter, or none
			return text
		}
		n[i], text = number, rest
	}
	d.Settled, d.Unknown, d.Expired = int(n[0]), int(n[1]), int(n[2])
	return text
}

// until returns the time from which neither the holds nor their charges matter, 0 without any.
func (h *Hold) until(l *Limit, s *State) int64 {
	until, c := s.Holds.Until(), *s
	if until == 0 || h.Release {
		return until
	}
	if l.Algorithm.HasGrants() { // only the newest charge matters
		c = State{}
	}
	c.ChargeAt(l, until, min(s.Holds.Units(), 2*l.Capacity()))
	return c.Last + registry[l.Algorithm].engine.drain(l, &c)
}

// keep makes the state what the store keeps. A closed bucket keeps its state.
func (d *Held) keep(s *State, l *Limit) {
	if !d.charged && l.Requests > 0 {
		d.unrolled.Holds = s.Holds
		*s = d.unrolled
	}
	d.unrolled = State{}
}

// Look returns the bucket of the take at the time now, without its expired holds. It does not change the state s.
func (t *Take) Look(s *State, now int64) State {
	b := Loaded{State: s.Clone()}
	if t.Hold != nil && t.Limit.Requests > 0 {
		t.Hold.expire(&t.Limit, &b, b.State.anchor(now, &b.Changed), new(Held))
	}
	return b.State
}
