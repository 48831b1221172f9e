package bucket

import "slices"

// Merge joins two states of one bucket: it brings both to one time and keeps the larger of each part. That is the count
// of each window, the time until the bucket is empty, or the cost at each time of a log. It reports whether other has a
// part that is larger than that of s.
//
// The time is now, or the later Last of the two if the clock has stepped back a little since. Merge is idempotent,
// commutative, associative and monotone, so it does no harm to join a state twice, or late. The Grants of s are never
// those of other, whose Grants do not change.
//
// Of holds, it keeps those of both, each once by its id and expiry, and the larger parts of both sums (Holds.Others).
func (s *State) Merge(l *Limit, other *State, now int64) (grew bool) {
	if l.Requests == 0 { // a closed bucket keeps its state
		return false
	}
	grew = s.joinHolds(other.Holds)
	s.at(l, now)
	other.at(l, now)
	row := registry[l.Algorithm].engine
	switch {
	case other.unused():
		return grew
	case s.unused():
		s.Last = other.Last
	case s.Last < other.Last:
		row.roll(l, s, other.Last)
	case other.Last < s.Last:
		row.roll(l, other, s.Last)
	}
	return row.merge(l, s, other) || grew
}

// joinHolds adds the holds of another state that this one does not have.
func (s *State) joinHolds(other *Holds) (grew bool) {
	if other.Number() == 0 {
		return false
	}
	joined := &Holds{}
	if s.Holds != nil {
		joined = s.Holds.Clone() // copies of the state may share them
	}
	for _, c := range other.Live() {
		if joined.find(c.ID, c.Expires) < 0 {
			joined.Add(c)
			grew = true
		}
	}
	o, more := &joined.Others, other.Others
	larger := SomeHolds{max(o.Units, more.Units), max(o.Number, more.Number), max(o.Until, more.Until)}
	grew = grew || larger != *o
	*o, s.Holds = larger, joined
	return grew
}

// Lowest returns the state of the floor. The units beyond the cut of a log are as old as they can be.
func (f *Floor) Lowest() State {
	s := f.State
	if last := len(s.Grants) - 1; f.Cut && last > 0 {
		s.Grants = slices.Clone(s.Grants[:last])
		s.Grants[last-1].Cost += f.State.Grants[last].Cost
	}
	return s
}

// Used returns how many units are in use at the time now, without those of holds, rounded up. They may be more than the
// capacity. It does not change the state.
func (s *State) Used(l *Limit, now int64) int64 {
	if l.Requests == 0 {
		return 0
	}
	c := *s
	c.at(l, now)
	return registry[l.Algorithm].engine.used(l, &c)
}

// Fits reports whether n more units fit at the time now, without holds. It does not change the state.
func (s *State) Fits(l *Limit, now, n int64) bool {
	if l.Requests == 0 {
		return n == 0
	}
	alg := registry[l.Algorithm].engine
	n = min(n, 2*l.Capacity()+1)
	// From its time on, a bucket only becomes emptier. So what fits then fits now, and most buckets need no copy.
	if s.Last-now <= MaxClockStep && (s.Rate == 0 || s.Rate == l.Requests) && alg.fits(l, s, n) {
		return true
	}
	c := *s
	c.at(l, now)
	return alg.fits(l, &c, n)
}

// Charge adds n units at the time now, at most up to twice the capacity. It changes the Grants in place: see Clone.
func (s *State) Charge(l *Limit, now, n int64) {
	if l.Requests == 0 || n == 0 {
		return
	}
	s.at(l, now)
	registry[l.Algorithm].engine.charge(l, s, min(n, 2*l.Capacity()+1))
}

// Claims returns how many units the take charges or holds if its request is allowed.
func (t *Take) Claims() uint64 {
	reserved, _ := t.Hold.reserved()
	return min(t.Cost+reserved, uint64(2*t.Limit.Capacity()+1))
}

// Clone returns a copy with Grants and Holds of its own. Charges and refunds change the Grants of a state in place, so
// a copy by assignment is only safe if neither the state nor the copy is charged. Nothing else changes Grants in place.
// Takes with a Hold change the Holds in place.
func (s *State) Clone() State {
	c := *s
	c.Grants, c.Holds = slices.Clone(s.Grants), s.Holds.Clone()
	return c
}
