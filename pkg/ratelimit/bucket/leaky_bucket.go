package bucket

import (
	"fmt"
	"math/bits"
)

// leakyBucket is the generic cell rate algorithm (GCRA). A unit leaks in Window/Requests; the bucket holds the time of
// Burst units. Count and Part are the time until it is empty: whole µs, and a numerator over Requests. It is also the
// engine of the token bucket, whose missing tokens it holds, as the time in which they refill.
type leakyBucket struct{}

// span is a length of time, µs + part/Requests, with part < Requests.
type span struct{ micros, part int64 }

// longest is more than any bucket holds: see maxFill.
const longest = 1 << 53

// leak returns the time in which n units leak, at most longest.
func (l *Limit) leak(n int64) span {
	p, d := product(n, l.Window), uint64(l.Requests)
	if p.hi == 0 && p.lo/d < longest { // one division of 64 bits, except for the largest limits
		return span{int64(p.lo / d), int64(p.lo % d)}
	}
	if !less(p, product(longest, l.Requests)) {
		return span{longest, 0}
	}
	q, r := mulDiv(n, l.Window, l.Requests)
	return span{q, r}
}

func (l *Limit) add(a, b span) span {
	sum := span{a.micros + b.micros, a.part + b.part}
	if sum.part >= l.Requests {
		sum.micros, sum.part = sum.micros+1, sum.part-l.Requests
	}
	return sum
}

// sub returns a − b. Its micros are negative if a < b.
func (l *Limit) sub(a, b span) span {
	diff := span{a.micros - b.micros, a.part - b.part}
	if diff.part < 0 {
		diff.micros, diff.part = diff.micros-1, diff.part+l.Requests
	}
	return diff
}

// exceeds reports whether a is more than the time in which n units leak: a·Requests > n·Window. It needs no division.
func (l *Limit) exceeds(a span, n int64) bool {
	content := product(a.micros, l.Requests)
	low, carry := bits.Add64(content.lo, uint64(a.part), 0)
	return less(product(n, l.Window), uint128{content.hi + carry, low})
}

func (a span) more(b span) bool {
	return a.micros > b.micros || a.micros == b.micros && a.part > b.part
}

func (a span) ceil() int64 {
	if a.part > 0 {
		return a.micros + 1
	}
	return a.micros
}

func held(s *State) span { return span{s.Count, s.Part} }

func (leakyBucket) roll(l *Limit, s *State, x int64) {
	// A fraction of another rate is rounded up, never in the client's favour.
	if s.Rate != l.Requests {
		s.Count, s.Part, s.Rate = held(s).ceil(), 0, l.Requests
	}
	s.Count -= x - s.Last
	if s.Count < 0 {
		s.Count, s.Part = 0, 0
	}
	s.Last = x
}

func (leakyBucket) fits(l *Limit, s *State, n int64) bool {
	return n <= l.Burst && !l.exceeds(held(s), l.Burst-n)
}

func (leakyBucket) charge(l *Limit, s *State, n int64) {
	before := held(s)
	after := l.add(before, l.leak(n))
	if l.exceeds(after, 2*l.Burst) {
		if after = l.leak(2 * l.Burst); before.more(after) {
			after = before
		}
	}
	s.Count, s.Part, s.Rate = after.micros, after.part, l.Requests
}

func (leakyBucket) refund(l *Limit, s *State, n, since int64) {
	back := l.leak(n)
	if since != 0 {
		// From that time on, nothing else was there to leak in any case.
		if back.micros -= max(0, s.Last-since); back.micros < 0 {
			return
		}
	}
	rest := l.sub(held(s), back)
	if rest.micros < 0 {
		rest = span{}
	}
	s.Count, s.Part = rest.micros, rest.part
}

func (leakyBucket) merge(_ *Limit, s, other *State) (grew bool) {
	if !held(other).more(held(s)) {
		return false
	}
	s.Count, s.Part, s.Rate = other.Count, other.Part, other.Rate
	return true
}

// used returns at most longest: a debt under a slow rate may be more units under a fast one than 64 bits hold.
func (leakyBucket) used(l *Limit, s *State) int64 {
	if !less(product(s.Count, l.Requests), product(longest, l.Window)) {
		return longest
	}
	// ⌈(Count·Requests + Part)/Window⌉: Part < Requests, so it is added to the remainder of the first division.
	q, r := mulDiv(s.Count, l.Requests, l.Window)
	return q + (r+s.Part+l.Window-1)/l.Window
}

func (leakyBucket) wait(l *Limit, s *State, n int64) int64 {
	return l.sub(l.add(held(s), l.leak(n)), l.leak(l.Burst)).ceil()
}

// queueAll lets each take wait until the bucket is empty.
func queueAll(l Limit, ahead int64, cost uint64) (burst, atOnce int64) {
	return min(l.Burst, ahead+int64(min(cost, uint64(l.Burst)))), 0
}

// queueExcess lets takes wait that are beyond the burst. A peek cannot wait, so it asks for a unit of the burst.
func queueExcess(l Limit, ahead int64, cost uint64) (burst, atOnce int64) {
	if cost == 0 {
		ahead = 0
	}
	return l.Burst + ahead, l.Burst
}

func (leakyBucket) drain(_ *Limit, s *State) int64 { return held(s).ceil() }

func (leakyBucket) sound(s *State, held int64) bool {
	return held == 0 && s.Count < longest && (s.Part == 0 || s.Part < s.Rate)
}

func (leakyBucket) text(b []byte, s *State) []byte {
	b = fmt.Appendf(b, "b1 %d %d", s.Last, s.Count)
	if s.Part == 0 {
		return b
	}
	return fmt.Appendf(b, " %d %d", s.Part, s.Rate)
}

// parse leaves Rate at 0 if there is no Part, because only Part depends on Rate.
func (leakyBucket) parse(s *State, rest string) (cut, ok bool) {
	if s.Count, rest, ok = cutNumber(rest, ' '); !ok || rest == "" {
		return false, ok
	}
	if s.Part, rest, ok = cutNumber(rest, ' '); ok {
		s.Rate, _, ok = cutNumber(rest, ' ')
	}
	return false, ok
}
