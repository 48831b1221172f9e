package bucket

import "fmt"

// slidingWindowCounter estimates the units within the last Window: current + previous × the share of the previous
// window that still lies in it, as an exact fraction. Count is the window that contains Last, Part the one before.
type slidingWindowCounter struct{}

func (slidingWindowCounter) roll(l *Limit, s *State, x int64) {
	if x == s.Last {
		return
	}
	switch x/l.Window - s.Last/l.Window {
	case 0:
	case 1:
		s.Count, s.Part = 0, s.Count
	default:
		s.Count, s.Part = 0, 0
	}
	s.Last = x
}

// fits compares previous·(W−e) with (L−current−n)·W, both of 128 bits.
func (slidingWindowCounter) fits(l *Limit, s *State, n int64) bool {
	left := l.Requests - s.Count - n
	return left >= 0 && !less(product(left, l.Window), product(s.Part, l.Window-s.Last%l.Window))
}

func (slidingWindowCounter) charge(l *Limit, s *State, n int64) {
	s.Count = max(s.Count, min(s.Count+n, 2*l.Requests))
}

func (slidingWindowCounter) refund(l *Limit, s *State, n, since int64) {
	if since == 0 {
		current := min(n, s.Count)
		s.Count -= current
		s.Part = max(0, s.Part-(n-current))
		return
	}
	switch s.Last/l.Window - since/l.Window {
	case 0:
		s.Count = max(0, s.Count-n)
	case 1:
		s.Part = max(0, s.Part-n)
	}
}

func (slidingWindowCounter) merge(_ *Limit, s, other *State) (grew bool) {
	grew = other.Count > s.Count || other.Part > s.Part
	s.Count, s.Part = max(s.Count, other.Count), max(s.Part, other.Part)
	return grew
}

func (slidingWindowCounter) used(l *Limit, s *State) int64 {
	return s.Count + mulDivCeil(s.Part, l.Window-s.Last%l.Window, l.Window)
}

// wait spans two windows. Units that do not fit beside the current count wait until that count is the previous one.
func (slidingWindowCounter) wait(l *Limit, s *State, n int64) int64 {
	e := s.Last % l.Window
	if left := l.Requests - s.Count - n; left >= 0 {
		return fadesTo(left, s.Part, l.Window) - e
	}
	return l.Window - e + fadesTo(l.Requests-n, s.Count, l.Window)
}

func (slidingWindowCounter) drain(l *Limit, s *State) int64 {
	e := s.Last % l.Window
	switch {
	case s.Count > 0:
		return 2*l.Window - e
	case s.Part > 0:
		return l.Window - e
	}
	return 0
}

// fadesTo returns the first instant of a window at which the weight of the previous one, p > left units, is down to
// left units: ⌈(p − left)·W/p⌉.
func fadesTo(left, p, window int64) int64 { return mulDivCeil(p-left, window, p) }

func (slidingWindowCounter) sound(s *State, held int64) bool {
	return held == 0 && s.Count <= maxUnits && s.Part <= maxUnits
}

func (slidingWindowCounter) text(b []byte, s *State) []byte {
	return fmt.Appendf(b, "c1 %d %d %d", s.Last, s.Count, s.Part)
}

func (slidingWindowCounter) parse(s *State, rest string) (cut, ok bool) {
	if s.Count, rest, ok = cutNumber(rest, ' '); ok {
		s.Part, _, ok = cutNumber(rest, ' ')
	}
	return false, ok
}
