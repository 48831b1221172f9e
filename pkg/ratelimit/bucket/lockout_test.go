package bucket_test

import (
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestLongestLockout is the table of lockouts in docs/algorithms.md: how long a client waits for one request after its
// last one. The client sends many requests at the worst time, the beginning of a window. counted is with CountDenied.
func TestLongestLockout(t *testing.T) {
	const w = 3_600_000_000
	for _, c := range []struct {
		algorithm          bucket.Algorithm
		requests, burst    int64
		uncounted, counted int64
	}{
		{bucket.SlidingWindowLog, 5, 5, w, w},
		{bucket.SlidingWindowLog, 1, 1, w, w},
		{bucket.SlidingWindowLog, 10, 10, w, w},
		{bucket.SlidingWindowCounter, 1, 1, 2 * w, 2 * w},
		{bucket.SlidingWindowCounter, 10, 10, w + w/10, w + w/2 + w/20},
		{bucket.SlidingWindowCounter, 5, 5, w + w/5, w + w/2 + w/10}, // W(1 + 1/L), W(3/2 + 1/2L)
		{bucket.SlidingWindowCounter, 100, 100, w + w/100, w + w/2 + w/200},
		{bucket.TokenBucket, 10, 300, w / 10, 301 * w / 10}, // W/L, (B + 1)W/L
		{bucket.TokenBucket, 10, 10, w / 10, 11 * w / 10},
		{bucket.TokenBucket, 1, 1, w, 2 * w},
		{bucket.LeakyBucket, 5, 5, w / 5, 6 * w / 5},
		{bucket.FixedWindow, 5, 5, w, w},
	} {
		limit := bucket.Limit{Algorithm: c.algorithm, Requests: c.requests, Burst: c.burst, Window: w}
		for counts, want := range map[bool]int64{false: c.uncounted, true: c.counted} {
			store := pure{}
			var last bucket.Decision
			for range 4*max(c.requests, c.burst) + 1 {
				r := bucket.Request{At: 1000 * w}
				r.Add(bucket.Take{Key: "client", Limit: limit, Cost: 1, CountDenied: counts})
				outcomes := make([]bucket.Outcome, 1)
				ratelimit.Take(t.Context(), store, []bucket.Request{r}, outcomes)
				last = outcomes[0].Decisions[0]
			}
			if last.Allowed || last.RetryAfter != want {
				t.Errorf("%s, %d an hour, burst %d, counted %t: got %d µs (allowed %t), want %d",
					c.algorithm, c.requests, c.burst, counts, last.RetryAfter, last.Allowed, want)
			}
		}
	}
}

// TestRetriesWithACost is the example of docs/algorithms.md: each request costs 100, of a bucket of 300 that gets back
// 10 a second. The client retries once a second. If denials are charged, only the first three requests pass.
func TestRetriesWithACost(t *testing.T) {
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 10, Burst: 300, Window: 1_000_000}
	for counts, want := range map[bool]int{true: 3, false: 8} {
		store, passed, lockout := pure{}, 0, int64(0)
		for second := range int64(60) {
			r := bucket.Request{At: 1_000_000 * (1000 + second)}
			r.Add(bucket.Take{Key: "client", Limit: limit, Cost: 100, CountDenied: counts})
			outcomes := make([]bucket.Outcome, 1)
			if ratelimit.Take(t.Context(), store, []bucket.Request{r}, outcomes); outcomes[0].Allowed {
				passed++
			}
			lockout = max(lockout, outcomes[0].RetryAfter)
		}
		if passed != want || counts && lockout != 40_000_000 {
			t.Errorf("denials charged %t: %d requests of 60 pass, lockout of %d µs; want %d, and 40 s if they are",
				counts, passed, lockout, want)
		}
	}
}
