package bucket

// calendarWindow is fixedWindow with the windows of Limit.Calendar. Its state is the same.
type calendarWindow struct{ fixedWindow }

func (calendarWindow) roll(l *Limit, s *State, x int64) {
	if x != s.Last {
		if begin, _ := l.Calendar.Window(x); s.Last < begin {
			s.Count = 0
		}
	}
	s.Last = x
}

func (calendarWindow) refund(l *Limit, s *State, n, since int64) {
	if begin, end := l.Calendar.Window(s.Last); since == 0 || since >= begin && since < end {
		s.Count = max(0, s.Count-n)
	}
}

func (calendarWindow) wait(l *Limit, s *State, _ int64) int64 {
	_, end := l.Calendar.Window(s.Last)
	return end - s.Last
}

func (w calendarWindow) drain(l *Limit, s *State) int64 { return w.wait(l, s, 0) }
