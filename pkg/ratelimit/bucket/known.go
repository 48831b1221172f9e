package bucket

import "slices"

// Merge joins two states of one bucket: it brings both to one time and keeps the larger of each part. That is the count
// of each window, the time until the bucket is empty, or the cost at each time of a log. It reports whether other has a
// part that is larger than that of s.
//
// The time is now, or the later Last of the two if the clock has stepped back a little since. Merge is idempotent,
// commutative, associative and monotone, so it does no harm to join a state twice, or late. The Grants of s are never
// those of other.
func (s *State) Merge(l *Limit, other *State, now int64) (grew bool) {
	if l.Requests == 0 { // a closed bucket keeps its state
		return false
	}
	o := *other
	s.at(l, now)
	o.at(l, now)
	row := registry[l.Algorithm].engine
	switch {
	case o.Empty():
		return false
	case s.Empty():
		s.Last = o.Last
	case s.Last < o.Last:
		row.roll(l, s, o.Last)
	case o.Last < s.Last:
		row.roll(l, &o, s.Last)
	}
	return row.merge(l, s, &o)
}

// Used returns how many units are in use at the time now, rounded up. They may be more than the capacity. It does not
// change the state.
func (s *State) Used(l *Limit, now int64) int64 {
	if l.Requests == 0 {
		return 0
	}
	c := *s
	c.at(l, now)
	return registry[l.Algorithm].engine.used(l, &c)
}

// Fits reports whether n more units fit at the time now. It does not change the state.
func (s *State) Fits(l *Limit, now, n int64) bool {
	if l.Requests == 0 {
		return n == 0
	}
	c := *s
	c.at(l, now)
	return registry[l.Algorithm].engine.fits(l, &c, min(n, 2*l.Capacity()+1))
}

// Charge adds n units at the time now, at most up to twice the capacity. It changes the Grants in place: see Clone.
func (s *State) Charge(l *Limit, now, n int64) {
	if l.Requests == 0 || n == 0 {
		return
	}
	s.at(l, now)
	registry[l.Algorithm].engine.charge(l, s, min(n, 2*l.Capacity()+1))
}

// Clone returns a copy with Grants of its own. Charges and refunds change the Grants of a state in place, so a copy by
// assignment is only safe if neither the state nor the copy is charged. Nothing else changes Grants in place.
func (s *State) Clone() State {
	c := *s
	c.Grants = slices.Clone(s.Grants)
	return c
}
