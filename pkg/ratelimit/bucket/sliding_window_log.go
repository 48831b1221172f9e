package bucket

import (
	"fmt"
	"strings"
)

// slidingWindowLog remembers every accepted request for one Window. Count is the sum of Grants.
type slidingWindowLog struct{}

func (slidingWindowLog) roll(l *Limit, s *State, x int64) {
	gone := 0
	for gone < len(s.Grants) && s.Grants[gone].At <= x-l.Window {
		s.Count -= s.Grants[gone].Cost
		gone++
	}
	s.Grants = s.Grants[gone:]
	s.Last = x
}

func (slidingWindowLog) fits(l *Limit, s *State, n int64) bool { return s.Count+n <= l.Requests }

// charge keeps the newest Requests+1 units, because more would not change any decision. If the log held more before,
// from a larger limit, it keeps as many as it held: the limit may rise again.
func (slidingWindowLog) charge(l *Limit, s *State, n int64) {
	most := max(l.Requests+1, s.Count)
	s.Grants = appendGrant(s.Grants, Grant{At: s.Last, Cost: n})
	s.Count += n
	for over := s.Count - most; over > 0; over = s.Count - most {
		cut := min(over, s.Grants[0].Cost)
		s.Grants[0].Cost -= cut
		s.Count -= cut
		if s.Grants[0].Cost == 0 {
			s.Grants = s.Grants[1:]
		}
	}
}

// refund removes the newest units, of those that are not newer than since.
func (slidingWindowLog) refund(_ *Limit, s *State, n, since int64) {
	if since > s.Last { // a large step back of the clock has moved the log since
		return
	}
	newer := len(s.Grants)
	for since != 0 && newer > 0 && s.Grants[newer-1].At > since {
		newer--
	}
	left := newer
	for n > 0 && left > 0 {
		newest := &s.Grants[left-1]
		cut := min(n, newest.Cost)
		newest.Cost -= cut
		s.Count -= cut
		n -= cut
		if newest.Cost == 0 {
			left--
		}
	}
	s.Grants = append(s.Grants[:left], s.Grants[newer:]...)
}

// merge keeps the larger cost at each time.
func (slidingWindowLog) merge(_ *Limit, s, other *State) (grew bool) {
	if covers(s.Grants, other.Grants) {
		return false
	}
	all := make([]Grant, 0, len(s.Grants)+len(other.Grants))
	mine, count := s.Grants, s.Count
	for _, theirs := range other.Grants {
		for len(mine) > 0 && mine[0].At < theirs.At {
			all, mine = append(all, mine[0]), mine[1:]
		}
		g := Grant{At: theirs.At}
		if len(mine) > 0 && mine[0].At == theirs.At {
			g, mine = mine[0], mine[1:]
		}
		if more := theirs.Cost - g.Cost; more > 0 {
			g.Cost, count, grew = theirs.Cost, count+more, true
		}
		all = append(all, g)
	}
	if grew {
		s.Grants, s.Count = append(all, mine...), count
	}
	return grew
}

// covers reports whether a log has at least the cost of another one at each time.
func covers(log, other []Grant) bool {
	for _, g := range other {
		for len(log) > 0 && log[0].At < g.At {
			log = log[1:]
		}
		if len(log) == 0 || log[0].At > g.At || log[0].Cost < g.Cost {
			return false
		}
	}
	return true
}

func (slidingWindowLog) used(_ *Limit, s *State) int64 { return s.Count }

// wait is the time until enough of the oldest grants are one Window old.
func (slidingWindowLog) wait(l *Limit, s *State, n int64) int64 {
	held := s.Count
	for _, g := range s.Grants {
		held -= g.Cost
		if held+n <= l.Requests {
			return g.At + l.Window - s.Last
		}
	}
	return 0
}

func (slidingWindowLog) drain(l *Limit, s *State) int64 {
	if len(s.Grants) == 0 {
		return 0
	}
	return s.Grants[len(s.Grants)-1].At + l.Window - s.Last
}

func (slidingWindowLog) sound(s *State, held int64) bool {
	return held == s.Count && s.Part == 0
}

func (slidingWindowLog) text(b []byte, s *State) []byte {
	if len(s.Grants) == 0 {
		return fmt.Appendf(b, "s1 %d %d 0 0 0 ", s.Last, s.Count)
	}
	var entries []byte
	first, newest := s.Grants[0].At, s.Grants[len(s.Grants)-1].At
	for at, i := first, 0; i < len(s.Grants); i++ {
		g := s.Grants[i]
		entries = fmt.Appendf(entries, "%d:%d ", g.At-at, g.Cost)
		at = g.At
	}
	b = fmt.Appendf(b, "s1 %d %d %d %d %d ", s.Last, s.Count, s.Last-newest, newest-first, len(entries))
	return append(b, entries...)
}

// parse reads the entries, which sliding_window_log.lua describes. If a text was cut, the units beyond the cut are
// added at the newest time: no answer about the bucket depends on their times.
func (slidingWindowLog) parse(s *State, entries string) (cut, ok bool) {
	var n [4]int64 // units, age, span, length of the entries
	for i := range n {
		if n[i], entries, ok = cutNumber(entries, ' '); !ok {
			return false, false
		}
	}
	s.Count = n[0]
	newest := s.Last - n[1]
	at, left := newest-n[2], n[0]
	if s.Grants = nil; entries != "" {
		s.Grants = make([]Grant, 0, strings.Count(entries, ":")+1)
	}
	for entries != "" {
		var gap, units int64
		if gap, entries, ok = cutNumber(entries, ':'); !ok {
			return false, false
		}
		if units, entries, ok = cutNumber(entries, ' '); !ok {
			return false, false
		}
		at, left = at+gap, left-units
		s.Grants = appendGrant(s.Grants, Grant{At: at, Cost: units})
	}
	if cut = left > 0 && at < newest; left > 0 {
		s.Grants = appendGrant(s.Grants, Grant{At: newest, Cost: left})
	}
	return cut, left >= 0
}

// appendGrant adds a grant. If the newest grant has the same time, it adds the cost to that grant.
func appendGrant(grants []Grant, g Grant) []Grant {
	if last := len(grants) - 1; last >= 0 && grants[last].At == g.At {
		grants[last].Cost += g.Cost
		return grants
	}
	return append(grants, g)
}
