package storetest

import "github.com/extauthz/extauthz/pkg/ratelimit/bucket"

// JoinFloor joins a floor with a state as the script does, and reports whether the state grew by it. It is Merge,
// except for a log that is known only in part: its units beyond the cut may be those that the state has at other times.
// Such a floor adds only as many units as the state has less of the time up to Floor.At, the oldest first. It adds no
// hold that has expired: the state may have had it, and charged it.
func JoinFloor(f *bucket.Floor, l *bucket.Limit, s *bucket.State, now int64) (grew bool) {
	known := f.Lowest()
	known.Holds = nil
	if f.Cut && l.Algorithm.HasGrants() {
		dropUnits(f, l, s, &known, now)
	}
	grew = s.Merge(l, &known, now)
	var live bucket.State
	for _, c := range append(f.State.Holds.Live(), f.Unsent.Live()...) {
		if c.Expires > s.Last {
			if live.Holds == nil {
				live.Holds = new(bucket.Holds)
			}
			live.Holds.Add(c)
		}
	}
	return s.Merge(l, &live, now) || grew
}

// dropUnits brings a state and a log that is known only in part to one time, and drops from the log the units that
// JoinFloor does not add.
func dropUnits(f *bucket.Floor, l *bucket.Limit, s, known *bucket.State, now int64) {
	at := f.At
	if back := known.Last - now; back > bucket.MaxClockStep { // the floor moves with the clock
		at -= back
	}
	s.Remaining(l, now) // brings it to the time
	known.Remaining(l, now)
	if s.Last > known.Last {
		known.Remaining(l, s.Last)
	} else if s.Count > 0 {
		s.Remaining(l, known.Last)
	}
	missing, mine := known.Count, make(map[int64]int64)
	for _, g := range s.Grants {
		mine[g.At] += g.Cost
		if g.At <= at {
			missing -= g.Cost
		}
	}
	all := known.Grants
	known.Count, known.Grants = 0, nil
	for _, g := range all {
		if more := min(g.Cost-mine[g.At], missing); more > 0 {
			g.Cost = mine[g.At] + more
			missing, known.Count = missing-more, known.Count+g.Cost
			known.Grants = append(known.Grants, g)
		}
	}
}
