package redisstore_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// daysAt returns a limit for days that begin so long before those in UTC.
func daysAt(offset time.Duration, requests int64) bucket.Limit {
	return bucket.Limit{
		Algorithm: bucket.CalendarWindow, Requests: requests, Window: 86_400_000_000,
		Calendar: bucket.NewCalendar("day", time.FixedZone("here", int(offset.Seconds()))),
	}
}

// TestCalendarByTheClockOfRedis sends the windows around a clock that differs from that of Redis, by less than a window
// or by several. The clock of Redis chooses the window; beyond the windows that are sent, the nearest one repeats. A
// day of Redis never admits more than the limit, and the bucket lives until its window ends.
func TestCalendarByTheClockOfRedis(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	limit := daysAt(7*time.Hour, 3)
	// check returns false if a day ends meanwhile.
	check := func(t *testing.T, key string) bool {
		before := script.client.Time(t.Context()).Val().UnixMicro()
		for i := range 5 {
			o := []bucket.Outcome{{}}
			ratelimit.Take(t.Context(), script, []bucket.Request{ask(key, limit)}, o)
			after := script.client.Time(t.Context()).Val().UnixMicro()
			if _, end := limit.WindowAt(before); after >= end {
				return false
			}
			if o[0].Err != nil || o[0].Allowed != (i < 3) || !o[0].Allowed && o[0].RetryAfter <= 0 {
				t.Fatalf("take %d of 3: %+v", i, o[0])
			}
			_, end := limit.WindowAt(after)
			expires := script.client.Do(t.Context(), "PEXPIRETIME", key).Val().(int64) * 1000
			if slack := expires - end; slack < 1_000_000 || slack > 5_000_000 {
				t.Errorf("expires %d µs after the end of the window", slack)
			}
		}
		return true
	}
	for _, ahead := range []time.Duration{0, 24 * time.Hour, -24 * time.Hour, 10 * 24 * time.Hour, -10 * 24 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			script.ahead = ahead
			if !check(t, t.Name()) && !check(t, t.Name()+" again") {
				t.Error("two days have ended meanwhile")
			}
		})
	}
}

// TestReplicasDisagreeAboutABound lets two replicas count one bucket by days that begin an hour apart, as with two
// versions of the zone data. They differ once, at that bound: between two bounds of either, no more than the limit
// passes.
func TestReplicasDisagreeAboutABound(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	limits := []bucket.Limit{daysAt(2*time.Hour, 10), daysAt(time.Hour, 10)}
	passed := map[string]int{} // by the windows of both
	begin := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	for minute := range int64(4 * 24 * 60) {
		at := begin + minute*60_000_000
		for i := range limits {
			r := ask("k", limits[(int(minute)+i)%2])
			r.At = at + int64(i)
			o := []bucket.Outcome{{}}
			ratelimit.Take(t.Context(), script, []bucket.Request{r}, o)
			if o[0].Err != nil {
				t.Fatal(o[0].Err)
			}
			if o[0].Allowed {
				first, _ := limits[0].WindowAt(r.At)
				second, _ := limits[1].WindowAt(r.At)
				passed[fmt.Sprint(first, " ", second)]++
			}
		}
	}
	if len(passed) != 9 { // 5 days, of which 4 have an hour in which they disagree
		t.Errorf("%d spans between bounds, want 9: %v", len(passed), passed)
	}
	for span, n := range passed {
		if n > 10 {
			t.Errorf("%d passed between two bounds, %s", n, span)
		}
	}
}

// TestLargeWindow checks the extremes of the largest limit in Lua: its double, and five times as much before it is cut.
func TestLargeWindow(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	const most = bucket.MaxWindowRequests
	for _, limit := range []bucket.Limit{
		{Algorithm: bucket.FixedWindow, Requests: most, Window: 86_400_000_000}, daysAt(0, most),
	} {
		for i, step := range []struct {
			take  bucket.Take
			count int64
		}{
			{bucket.Take{Cost: most - 1}, most - 1},
			{bucket.Take{Cost: 2}, most - 1},
			{bucket.Take{Cost: 1}, most},
			{bucket.Take{Cost: 1<<64 - 1, CountDenied: true}, 2 * most},
			{bucket.Take{Cost: 1<<64 - 1, CountDenied: true}, 2 * most},
			{bucket.Take{Refund: 1<<64 - 1, Cost: 1<<64 - 1, CountDenied: true}, 2 * most},
			{bucket.Take{Refund: most + 1}, most - 1},
		} {
			step.take.Key, step.take.Limit = fmt.Sprint("large", limit.Algorithm, uint8(limit.Algorithm)), limit
			r := bucket.Request{At: 1_700_000_000_000_000}
			r.Add(step.take)
			o := []bucket.Outcome{{}}
			ratelimit.Take(t.Context(), script, []bucket.Request{r}, o)
			text := script.client.Get(t.Context(), step.take.Key).Val()
			state, err := parseState(limit.Algorithm, text)
			if o[0].Err != nil || err != nil || state.Count != step.count {
				t.Errorf("step %d: %q, want a count of %s (%v, %v)", i, text, strconv.FormatInt(step.count, 10), o[0].Err, err)
			}
		}
	}
}

// TestHoldsBeyondTheKnownDays reserves around the changes of the clock for a week. Redis knows three windows only, and
// must keep the bucket for as long as the charge of the expired hold matters.
func TestHoldsBeyondTheKnownDays(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	server := testenv.Redis(t)
	s, limit := open(t, redisstore.Config{URL: server.Addr}), daysAt(0, 10)
	limit.Calendar = bucket.NewCalendar("day", zone)
	week := bucket.Hold{TTL: (7 * 24 * time.Hour).Microseconds(), Most: 10}
	for _, change := range []time.Time{
		time.Date(2026, 10, 25, 1, 0, 0, 0, time.UTC), time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
	} {
		for hours := -10 * 24; hours < 3*24; hours++ {
			at := change.Add(time.Duration(hours)*time.Hour + 30*time.Minute)
			request := hold(at.String(), limit, 0, week, held(1, 1), nil)
			request.At = at.UnixMicro()
			take(t.Context(), s, request)
			text, err := server.Do("GET", at.String())
			if err != nil {
				t.Fatal(err)
			}
			var units, number, first, last, till int64
			if _, err := fmt.Sscanf(text, "h1 %d %d %d %d %d|", &units, &number, &first, &last, &till); err != nil {
				t.Fatalf("%q: %v", text, err)
			}
			if _, end := limit.WindowAt(request.At + week.TTL); till < end {
				t.Errorf("%v: Redis keeps the bucket until %v, want at least %v", at, time.UnixMicro(till), time.UnixMicro(end))
			}
		}
	}
}
