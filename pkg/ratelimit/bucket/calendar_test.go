package bucket_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/zonedata"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestCalendarOfRandomTimes checks windows in all zones of the system, at random times since 1900. A window contains
// its time and begins at the first instant of its first date or a later one, and windows leave no gap.
func TestCalendarOfRandomTimes(t *testing.T) {
	zones := append(zonedata.Zones(), "UTC", "Pacific/Apia", "America/Havana", "Atlantic/Azores", "America/St_Johns")
	random := rand.New(rand.NewPCG(5, 6))
	from, to := time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2090, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, zone := range zones {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			unit := bucket.CalendarUnits[random.IntN(4)]
			c := bucket.NewCalendar(unit, location)
			at := (from + random.Int64N(to-from)) * 1_000_000
			if _, end := time.UnixMicro(at).In(location).ZoneBounds(); !end.IsZero() && random.IntN(2) == 0 {
				at = end.UnixMicro() + random.Int64N(7_200_000_000) - 3_600_000_000
			}
			begin, end := c.Window(at)
			if at < begin || at >= end {
				t.Fatalf("%s %d: [%d, %d) does not contain the time", c, at, begin, end)
			}
			for _, edge := range []int64{begin, end} {
				first := time.UnixMicro(edge).In(location)
				date := dateOf(first)
				if y, m, d := first.Date(); unit == "year" && (m != 1 || d != 1) || unit == "month" && d != 1 ||
					unit == "week" && first.Weekday() != time.Monday {
					if dateOf(time.UnixMicro(edge-1).In(location)) >= date-1 { // else the zone left out the first date
						t.Fatalf("%s %d: a window begins on %d-%d-%d", c, at, y, m, d)
					}
				}
				for range 20 { // no instant before has the date
					before := time.UnixMicro(edge - 1 - random.Int64N(90_000_000_000)).In(location)
					if dateOf(before) >= date {
						t.Fatalf("%s %d: a window begins at %v, but %v is before that", c, at, first, before)
					}
				}
			}
			if next, _ := c.Window(end); next != end {
				t.Fatalf("%s %d: the next window begins at %d, not %d", c, at, next, end)
			}
			if b := *c.Bounds(at); b[1] != begin || b[2] != end || b[0] >= begin || b[3] <= end {
				t.Fatalf("%s %d: [%d, %d) is not in the middle of %d", c, at, begin, end, b)
			}
		}
	}
}

// dateOf returns the number of a local date.
func dateOf(local time.Time) int64 {
	y, m, d := local.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86_400
}

// TestCalendarEdges checks dates at which zones changed their offsets at midnight.
func TestCalendarEdges(t *testing.T) {
	for name, windows := range map[string][][3]string{ // a time in the window, its beginning, and its end
		"day@Pacific/Apia": { // there was no 30 December 2011
			{"2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
			{"2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},
		},
		"day@America/St_Johns": { // back over midnight at 0:01
			{"2010-11-07T02:30:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"},
			{"2010-11-07T02:31:30Z", "2010-11-07T02:30:00Z", "2010-11-08T03:30:00Z"}, // 23:01:30 of the 6th again
		},
		"month@UTC":   {{"2028-02-29T23:59:59Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z"}},
		"week@UTC":    {{"2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"}},
		"year@UTC":    {{"1969-12-31T23:59:59Z", "1969-01-01T00:00:00Z", "1970-01-01T00:00:00Z"}},
		"day@Etc/UTC": {{"2026-11-28T12:00:00Z", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"}},
	} {
		c, err := bucket.CalendarNamed(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range windows {
			begin, end := c.Window(parse(t, w[0]))
			if begin != parse(t, w[1]) || end != parse(t, w[2]) {
				t.Errorf("%s at %s: [%v, %v), want [%s, %s)", name, w[0],
					time.UnixMicro(begin).UTC(), time.UnixMicro(end).UTC(), w[1], w[2])
			}
		}
	}
}

func parse(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

func TestCalendarNames(t *testing.T) {
	c, err := bucket.CalendarNamed("month@Europe/Berlin")
	if err != nil || c.String() != "month@Europe/Berlin" || c.Zone() != "Europe/Berlin" {
		t.Errorf("%v of %q, %v", c, c.Zone(), err)
	}
	if again, _ := bucket.CalendarNamed("month@Europe/Berlin"); again != c {
		t.Error("one name has two calendars")
	}
	for _, name := range []string{
		"", "month", "month@", "month@Local", "hour@UTC", "@UTC", "month@Europe/Berln", "month@../etc/passwd",
		"month@Europe//Berlin", "month@Europe/./Berlin",
		"month@posixrules", "month@right/UTC", "month@localtime", "month@/etc/localtime", "month@utc",
	} {
		if c, err := bucket.CalendarNamed(name); err == nil {
			t.Errorf("%q is %v", name, c)
		}
	}
}

// TestCalendarAllocatesNothing checks that a decision within windows that are known needs no memory.
func TestCalendarAllocatesNothing(t *testing.T) {
	l := bucket.Limit{Algorithm: bucket.CalendarWindow, Requests: 100, Window: day, Calendar: daysInUTC}
	r := &bucket.Request{}
	r.Add(bucket.Take{Key: "k", Limit: l, Cost: 1})
	loaded, o, now := make([]bucket.Loaded, 1), new(bucket.Outcome), int64(1_700_000_000_000_000)
	var args []byte
	if n := testing.AllocsPerRun(100, func() {
		now++
		r.Decide(now, loaded, o)
		args = r.AppendArgs(args[:0], bucket.WithNotes, now)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestLargeFixedWindow checks the extremes of the largest limit: costs up to 2^64-1, counted denials up to twice the
// limit, and refunds.
func TestLargeFixedWindow(t *testing.T) {
	const most = bucket.MaxWindowRequests
	l := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: most, Window: day}
	store := pure{}
	for i, step := range []struct {
		take      bucket.Take
		allowed   bool
		remaining int64
		count     int64
	}{
		{bucket.Take{Cost: most - 1}, true, 1, most - 1},
		{bucket.Take{Cost: 2}, false, 1, most - 1},
		{bucket.Take{Cost: 1}, true, 0, most},
		{bucket.Take{Cost: 1<<64 - 1, CountDenied: true}, false, 0, 2 * most},
		{bucket.Take{Cost: 1<<64 - 1, CountDenied: true}, false, 0, 2 * most},
		{bucket.Take{Refund: most + 1}, true, 1, most - 1},
		{bucket.Take{Refund: 1<<64 - 1}, true, most, 0},
	} {
		step.take.Key, step.take.Limit = "k", l
		r := bucket.Request{At: 1_700_000_000_000_000}
		r.Add(step.take)
		outcomes := make([]bucket.Outcome, 1)
		store.Start(t.Context(), []bucket.Request{r}, outcomes, func() {})
		s := store["k"]
		if o := outcomes[0]; o.Allowed != step.allowed || o.Decisions[0].Remaining != step.remaining ||
			s.Count != step.count {
			t.Errorf("step %d: allowed %t, %d left, a count of %d; want %t, %d, %d", i,
				o.Allowed, o.Decisions[0].Remaining, s.Count, step.allowed, step.remaining, step.count)
		}
	}
}
