package bucket_test

import (
	"slices"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestOneBurst is the table of docs/algorithms.md: the seconds at which a client passes until 2:05. The limit is 5 a
// minute; the client tries once a second from 0:50 on.
func TestOneBurst(t *testing.T) {
	const second = 1_000_000
	for algorithm, want := range map[bucket.Algorithm][]int64{
		bucket.FixedWindow:          {50, 51, 52, 53, 54, 60, 61, 62, 63, 64, 120, 121, 122, 123, 124},
		bucket.SlidingWindowCounter: {50, 51, 52, 53, 54, 72, 84, 96, 108, 120},
		bucket.SlidingWindowLog:     {50, 51, 52, 53, 54, 110, 111, 112, 113, 114},
		bucket.TokenBucket:          {50, 51, 52, 53, 54, 62, 74, 86, 98, 110, 122},
		bucket.LeakyBucket:          {50, 51, 52, 53, 54, 62, 74, 86, 98, 110, 122},
	} {
		store := pure{}
		limit := bucket.Limit{Algorithm: algorithm, Requests: 5, Burst: 5, Window: 60 * second}
		var passed []int64
		for s := int64(50); s < 125; s++ {
			r := bucket.Request{At: s * second}
			r.Add(bucket.Take{Key: "client", Limit: limit, Cost: 1})
			outcomes := make([]bucket.Outcome, 1)
			if ratelimit.Take(t.Context(), store, []bucket.Request{r}, outcomes); outcomes[0].Allowed {
				passed = append(passed, s)
			}
		}
		if !slices.Equal(passed, want) {
			t.Errorf("%s passes at %v, want %v", algorithm, passed, want)
		}
	}
}
