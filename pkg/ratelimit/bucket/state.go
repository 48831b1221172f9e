package bucket

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
)

// State is what a bucket holds. The zero value is an unused bucket. Each algorithm uses some of the fields.
type State struct {
	// Last is the time of the latest write. No decision is made for an earlier time.
	Last int64
	// Count is the units of the current window (fixed window, sliding window counter), or the units in Grants (log). For
	// the token and leaky bucket it is the whole microseconds until the bucket is empty.
	Count int64
	// Part is the units of the previous window (sliding window counter). For the token and leaky bucket it is the
	// fraction of a microsecond beyond Count, as a numerator over Rate.
	Part int64
	// Rate is the Requests of the limit that Count and Part belong to (token and leaky bucket). With it, a debt of time
	// survives a change of the limit.
	Rate int64
	// Grants are the accepted requests, oldest first (log).
	Grants []Grant
	// Holds are the live holds, nil for none. A copy of the state shares them: see Clone.
	Holds *Holds
}

// Grant is an accepted cost in the sliding window log. Requests accepted at the same time share one.
type Grant struct{ At, Cost int64 }

// Empty reports whether the bucket equals an unused one, so that its state need not be stored.
func (s *State) Empty() bool { return s.unused() && s.Holds.Number() == 0 }

// unused reports whether nothing is charged to the bucket.
func (s *State) unused() bool { return s.Count == 0 && s.Part == 0 }

// MaxClockStep is the largest step back of the clock, in µs, during which the bucket's time stands still. After a
// larger step the bucket moves with the clock and keeps its usage, or it would deny until the old time.
const MaxClockStep = 2_000_000

// engine is the implementation of an algorithm. A state that is passed in has been rolled to its Last, the time of the
// decision. roll, charge and refund change it in place, and its Grants with it. Limit and State are pointers because
// copying them cost five times as much as the arithmetic (BenchmarkDecide).
type engine interface {
	// roll brings a state forward to the time x ≥ s.Last and removes what has left the bucket by then.
	roll(l *Limit, s *State, x int64)
	// fits reports whether n more units are within the capacity.
	fits(l *Limit, s *State, n int64) bool
	// charge adds n units, at most up to twice the capacity.
	charge(l *Limit, s *State, n int64)
	// refund removes n units, at most until the bucket is empty. If since is not 0, it is the Decision.ChargedAt of these
	// units, and refund removes only what the bucket still holds of them.
	refund(l *Limit, s *State, n, since int64)
	// merge keeps the larger of each part of two states that have been rolled to the same time. It reports whether other
	// has a larger one. It changes neither the state other nor any Grants in place, and shares no Grants with other.
	merge(l *Limit, s, other *State) (grew bool)
	// used returns the units in use, rounded up.
	used(l *Limit, s *State) int64
	// wait returns the least time until n units fit that do not fit now. n ≤ capacity; n = 0 in an overfull bucket.
	wait(l *Limit, s *State, n int64) int64
	// drain returns the least time until the full quota is available (fixed window: until the window ends).
	drain(l *Limit, s *State) int64
	// sound reports whether the engine can go on from the state. Its Count, Part and Rate are not negative. The costs of
	// its Grants, in order of time, add up to held.
	sound(s *State, held int64) bool
	// parse reads the text that the Lua twin stores into a state that has only its Last. rest is the text without the tag
	// and the time. cut is Seen.Cut.
	parse(s *State, rest string) (cut, ok bool)
	// text appends the text that the Lua twin stores.
	text(b []byte, s *State) []byte
}

// at brings the state to the time now, without its holds. It reports whether a large step back of the clock moved it.
func (s *State) at(l *Limit, now int64) (moved bool) {
	x := s.anchor(now, &moved)
	registry[l.Algorithm].engine.roll(l, s, x)
	return moved
}

// anchor returns the time of the bucket at the time now, to which the state is then rolled. It sets moved if a large
// step back of the clock moved the state.
func (s *State) anchor(now int64, moved *bool) int64 {
	back := s.Last - now
	switch {
	case s.unused():
		*s = State{Last: now, Holds: s.Holds}
	case back > MaxClockStep:
		s.Grants = slices.Clone(s.Grants) // copies of the state may share them
		for i := range s.Grants {
			s.Grants[i].At -= back
		}
		s.Last, *moved = now, true
	}
	return max(s.Last, now)
}

// ChargeAt adds n units at a time, but not before the last charge.
func (s *State) ChargeAt(l *Limit, at, n int64) {
	alg := registry[l.Algorithm].engine
	if s.unused() {
		s.Last = at
	}
	alg.roll(l, s, max(s.Last, at))
	alg.charge(l, s, n)
}

// Remaining brings the state to the time now and returns the largest number of units that fit. A copy of the state may
// share its Grants, which do not change.
func (s *State) Remaining(l *Limit, now int64) int64 {
	if l.Requests == 0 {
		return 0
	}
	s.at(l, now)
	return max(0, l.Capacity()-registry[l.Algorithm].engine.used(l, s))
}

// Sound reports whether the algorithm can go on from the state. A store uses it to check what it reads back.
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

// parse reads the text that the script stores for a bucket of this algorithm; "" is an unused bucket. A text that the
// script cut for an answer makes a State that describes the bucket, but cannot be decided on. cut is Seen.Cut.
func (s *State) parse(a Algorithm, text string) (cut bool, err error) {
	*s = State{}
	rest, ok := s.parseHolds(text)
	if ok && rest == "" {
		return false, nil
	}
	tag := strings.IndexByte(rest, ' ') // only the Lua checks it, because other programs can write to Redis
	if ok = ok && tag >= 0; ok {
		if s.Last, rest, ok = cutNumber(rest[tag+1:], ' '); ok {
			cut, ok = registry[a].engine.parse(s, rest)
		}
	}
	if !ok {
		*s = State{}
		return false, fmt.Errorf("%q is not the state of a %s bucket", text, a)
	}
	return cut, nil
}

// parseHolds reads the holds of a bucket from its text, and returns the text without them. Without a list, which only
// the answer to a Dry request has, only their sum is known.
func (s *State) parseHolds(text string) (rest string, ok bool) {
	if rest, ok = strings.CutPrefix(text, "h1 "); !ok {
		return text, true
	}
	s.Holds = new(Holds)
	o := &s.Holds.Others
	for i, n := range [...]*int64{&o.Units, &o.Number, new(int64), &o.Until, new(int64)} {
		if *n, rest, ok = cutNumber(rest, "    |"[i]); !ok {
			return text, false
		}
	}
	rest, list, listed := strings.Cut(rest, ";")
	var all []HoldCost
	for listed {
		var hold string
		hold, list, listed = strings.Cut(list, ";")
		id, numbers, _ := strings.Cut(hold, " ")
		cost, expires, _ := strings.Cut(numbers, " ")
		c := HoldCost{}
		units, _, ok := cutNumber(cost, ' ')
		if c.Expires, _, _ = cutNumber(expires, ' '); !ok || units == 0 || len(id) != 2*len(c.ID) {
			return text, false
		}
		if _, err := hex.Decode(c.ID[:], []byte(id)); err != nil {
			return text, false
		}
		c.Cost = uint64(units)
		all = append(all, c)
		o.Units, o.Number = o.Units-units, o.Number-1
	}
	slices.SortStableFunc(all, func(a, b HoldCost) int { return cmp.Compare(a.Expires, b.Expires) })
	for _, c := range all {
		s.Holds.Add(c)
	}
	if o.Number <= 0 {
		*o = SomeHolds{}
	}
	return rest, true
}

// appendText appends the text of the floor, which parse and the script read: "" for an unused bucket.
func (f *Floor) appendText(b []byte, a Algorithm) []byte {
	if f.State.unused() {
		return b
	}
	s := f.Lowest()
	return registry[a].engine.text(b, &s)
}

// cutNumber reads the digits before the first separator, or all digits. It needs at least one.
func cutNumber(s string, separator byte) (n int64, rest string, ok bool) {
	i := 0
	for ; i < len(s) && s[i] != separator; i++ {
		digit := s[i] - '0'
		if digit > 9 || n > math.MaxInt64/10-1 {
			return 0, s, false
		}
		n = n*10 + int64(digit)
	}
	return n, s[min(i+1, len(s)):], i > 0
}
