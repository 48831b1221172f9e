package bucket

import "fmt"

// fixedWindow counts within the windows of Limit.WindowAt. Count belongs to the window that contains Last.
type fixedWindow struct{}

func (fixedWindow) roll(l *Limit, s *State, x int64) {
	if x != s.Last {
		if begin, _ := l.WindowAt(x); s.Last < begin {
			s.Count = 0
		}
	}
	s.Last = x
}

func (fixedWindow) fits(l *Limit, s *State, n int64) bool { return s.Count+n <= l.Requests }

func (fixedWindow) charge(l *Limit, s *State, n int64) {
	s.Count = max(s.Count, min(s.Count+n, 2*l.Requests))
}

func (fixedWindow) refund(l *Limit, s *State, n, since int64) {
	if begin, end := l.WindowAt(s.Last); since == 0 || since >= begin && since < end {
		s.Count = max(0, s.Count-n)
	}
}

func (fixedWindow) merge(_ *Limit, s, other *State) (grew bool) {
	grew = other.Count > s.Count
	s.Count = max(s.Count, other.Count)
	return grew
}

func (fixedWindow) used(_ *Limit, s *State) int64 { return s.Count }

func (fixedWindow) wait(l *Limit, s *State, _ int64) int64 {
	_, end := l.WindowAt(s.Last)
	return end - s.Last
}

func (w fixedWindow) drain(l *Limit, s *State) int64 { return w.wait(l, s, 0) }

func (fixedWindow) sound(s *State, held int64) bool {
	return held == 0 && s.Part == 0 && s.Count <= 2*MaxWindowRequests
}

func (fixedWindow) text(b []byte, s *State) []byte {
	return fmt.Appendf(b, "f1 %d %d", s.Last, s.Count)
}

func (fixedWindow) parse(s *State, rest string) (cut, ok bool) {
	s.Count, _, ok = cutNumber(rest, ' ')
	return false, ok
}
