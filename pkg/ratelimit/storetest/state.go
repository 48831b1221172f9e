package storetest

import (
	"strconv"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// ParseState reads the text that the script stores for a bucket of this algorithm; "" is an unused bucket. It reads it
// as an answer of the script at the time and by the rate of the text, which change nothing of the state.
func ParseState(a bucket.Algorithm, text string) (bucket.State, error) {
	if a == bucket.CalendarWindow { // the text is the same
		a = bucket.FixedWindow
	}
	limit := bucket.Limit{Algorithm: a, Requests: 1, Burst: 1, Window: bucket.MaxWindow}
	r := bucket.Request{At: 1}
	fields := strings.Fields(text[strings.IndexByte(text, '|')+1:])
	if len(fields) > 1 {
		r.At, _ = strconv.ParseInt(fields[1], 10, 64)
	}
	if a.HasBurst() && len(fields) == 5 {
		limit.Requests, _ = strconv.ParseInt(fields[4], 10, 64)
	}
	r.Takes = []bucket.Take{{Limit: limit, Hold: new(bucket.Hold)}}
	var o bucket.Outcome
	if err := r.Decode("+\t1"+text, bucket.Reply{}, &o); err != nil {
		return bucket.State{}, err
	}
	return o.Seen[0].State, nil
}

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
	for _, c := range f.State.Holds.Live() {
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
