package bucket_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const day = 86_400_000_000

var daysInUTC = bucket.NewCalendar("day", time.UTC)

// TestCheck checks that each limit is just inside the bounds. One more is refused, and the error names the largest
// that fits.
func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		limit bucket.Limit
		more  func(*bucket.Limit)
		want  string
	}{
		"requests of a counter": {
			bucket.Limit{Algorithm: bucket.SlidingWindowCounter, Requests: 1<<32 - 1, Window: 365 * day},
			func(l *bucket.Limit) { l.Requests++ }, "at most 4294967295",
		},
		"requests of a fixed window": {
			bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 999_999_999_999_999, Window: 365 * day},
			func(l *bucket.Limit) { l.Requests++ }, "at most 999999999999999",
		},
		"requests of a calendar": {
			bucket.Limit{Algorithm: bucket.CalendarWindow, Requests: 999_999_999_999_999, Window: day, Calendar: daysInUTC},
			func(l *bucket.Limit) { l.Requests++ }, "at most 999999999999999",
		},
		"a calendar": {
			bucket.Limit{Algorithm: bucket.CalendarWindow, Requests: 1, Window: day, Calendar: daysInUTC},
			func(l *bucket.Limit) { l.Calendar = nil }, "calendar",
		},
		"no calendar": {
			bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: day},
			func(l *bucket.Limit) { l.Calendar = daysInUTC }, "calendar",
		},
		"requests of a log": {
			bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10_000, Window: day},
			func(l *bucket.Limit) { l.Requests++ }, "at most 10000",
		},
		"burst": {
			bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1<<32 - 1, Window: 365 * day, Burst: 1<<32 - 1},
			func(l *bucket.Limit) { l.Burst++ }, "at most 4294967295",
		},
		"burst at a low rate": {
			bucket.Limit{Algorithm: bucket.LeakyBucket, Requests: 1, Window: day, Burst: 28_383},
			func(l *bucket.Limit) { l.Burst++ }, "at most 28383",
		},
		"window": {
			bucket.Limit{Algorithm: bucket.SlidingWindowCounter, Requests: 1, Window: bucket.MaxWindow},
			func(l *bucket.Limit) { l.Window++ }, "at most 28383 days",
		},
		"no requests": {
			bucket.Limit{Algorithm: bucket.TokenBucket, Window: 1},
			func(l *bucket.Limit) { l.Requests-- }, "want 0 or more",
		},
		"the shortest window": {
			bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: 1},
			func(l *bucket.Limit) { l.Window-- }, "want 1 or more",
		},
		"the smallest burst": {
			bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Window: 1, Burst: 1},
			func(l *bucket.Limit) { l.Burst-- }, "want 1 or more",
		},
		"algorithm": {
			bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: 1},
			func(l *bucket.Limit) { l.Algorithm = 100 }, "no algorithm",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := c.limit.Check(); err != nil {
				t.Errorf("%+v: %v", c.limit, err)
			}
			c.more(&c.limit)
			if err := c.limit.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want an error with %q", c.limit, err, c.want)
			}
		})
	}
}

// TestAddSmallerLimit checks that costs clamped for one limit are clamped again for a smaller limit on the same
// bucket.
func TestAddSmallerLimit(t *testing.T) {
	large := bucket.Limit{
		Algorithm: bucket.TokenBucket, Requests: bucket.MaxRequests, Window: day, Burst: bucket.MaxRequests,
	}
	small := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Window: day, Burst: 10}
	const all = 1<<64 - 1
	for _, limits := range [][2]bucket.Limit{{large, small}, {small, large}} {
		r := &bucket.Request{At: 1_700_000_000_000_000}
		for _, l := range limits {
			r.Add(bucket.Take{Key: "k", Limit: l, Cost: all, Need: all, Refund: all})
		}
		want := bucket.Take{Key: "k", Limit: small, Cost: 21, Need: 21, Refund: math.MaxInt64}
		if diff := cmp.Diff([]bucket.Take{want}, r.Takes); diff != "" {
			t.Errorf("two limits on one bucket: want the smaller limit (-want +got)\n%s", diff)
		}
		var o bucket.Outcome
		if r.Decide(0, make([]bucket.Loaded, 1), &o); o.Allowed || o.RetryAfter != bucket.Never {
			t.Errorf("21 of 10: allowed %t, retry after %d", o.Allowed, o.RetryAfter)
		}
	}
}
