package bucket

// State is what a bucket holds. The zero value is a bucket that nobody has used. Which fields are in use is the algorithm's
// affair; the comments of the algorithms say.
type State struct {
	// Last is the time of the latest write; no decision is made for an earlier one.
	Last int64
	// Count is the units of the current window (fixed window, sliding window counter), the units in Grants (log), or the
	// whole microseconds until the bucket is empty (token and leaky bucket).
	Count int64
	// Part is the units of the previous window (sliding window counter), or the fraction of a microsecond beyond Count, as
	// a numerator over Rate (token and leaky bucket).
	Part int64
	// Rate is the Requests of the limit that Count and Part were worked out for (token and leaky bucket): a debt of time
	// survives a change of the limit.
	Rate int64
	// Grants are the accepted requests, oldest first (log).
	Grants []Grant
}

// Grant is what the sliding window log remembers of requests that were accepted at the same time.
type Grant struct{ At, Cost int64 }

// Empty reports whether the bucket is as good as new: its state need not be stored.
func (s *State) Empty() bool { return s.Count == 0 && s.Part == 0 }

// MaxClockStep is the largest step back of the clock, in µs, during which time stands still. After a larger one the bucket
// moves with the clock, keeping its usage, or it would deny until the old time comes round again.
const MaxClockStep = 2_000_000

// engine is how one kind of bucket counts. A state that is passed in has been rolled to its Last, the time of the decision.
// roll, charge and refund change it in place, and its Grants with it. Limit and State are pointers because copying them cost
// five times what the arithmetic does (BenchmarkDecide).
type engine interface {
	// roll brings a state forward to the time x ≥ s.Last: what has left the bucket by then is gone.
	roll(l *Limit, s *State, x int64)
	// fits reports whether n more units are within the capacity.
	fits(l *Limit, s *State, n int64) bool
	// charge adds n units, but not beyond twice the capacity.
	charge(l *Limit, s *State, n int64)
	// refund takes n units out, down to an empty bucket.
	refund(l *Limit, s *State, n int64)
	// remaining is the largest number of units that fit.
	remaining(l *Limit, s *State) int64
	// wait is the least time until n units fit, which do not now; 1 ≤ n ≤ capacity, or n = 0 in an overfull bucket.
	wait(l *Limit, s *State, n int64) int64
	// drain is the least time until the full quota is there again (fixed window: until the window ends).
	drain(l *Limit, s *State) int64
	// sound reports whether the state is one that the engine can go on from. Its Count, Part and Rate are not negative, and the
	// costs of its Grants, in order of time, add up to held.
	sound(s *State, held int64) bool
	// parse reads the rest of the text that the Lua twin stores: what comes after the time.
	parse(last int64, rest string) (State, bool)
}

// at brings the state to the time now, and reports whether a large step back of the clock moved it, which must be stored.
func (s *State) at(l *Limit, now int64) (moved bool) {
	back := s.Last - now
	switch {
	case s.Empty():
		*s = State{Last: now}
		return false
	case back > MaxClockStep:
		for i := range s.Grants {
			s.Grants[i].At -= back
		}
		s.Last, moved = now, true
	}
	registry[l.Algorithm].engine.roll(l, s, max(s.Last, now))
	return moved
}

// Remaining returns the largest number of units that fit the bucket at the time now, to which it brings the state. The state of a
// log shares its Grants with what it was copied from; they stay as they are unless now is MaxClockStep before Last.
func (s *State) Remaining(l *Limit, now int64) int64 {
	if l.Requests == 0 {
		return 0
	}
	s.at(l, now)
	return registry[l.Algorithm].engine.remaining(l, s)
}

// Sound reports whether the state is one that the algorithm can go on from, so that a store can trust what it reads back.
func (s *State) Sound(a Algorithm) bool {
	if !a.known() || s.Count < 0 || s.Part < 0 || s.Rate < 0 || s.Rate > MaxRequests {
		return false
	}
	held := int64(0)
	for i, g := range s.Grants {
		if g.Cost < 1 || g.Cost > maxUnits || held > maxUnits || i > 0 && g.At < s.Grants[i-1].At {
			return false
		}
		held += g.Cost
	}
	return registry[a].engine.sound(s, held)
}
