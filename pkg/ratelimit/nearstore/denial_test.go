package nearstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestDenialBesideAnOldBucket lets the clock of Redis step an hour. A request then needs a bucket that is used up, and
// one that was last seen before the step. It is denied, and its wait is that of the bucket that is used up.
func TestDenialBesideAnOldBucket(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(algorithm.String()+" "+step.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					r := newReplica(t, s, nearstore.Config{DenialCache: true})
					l := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: 7_200_000_000}
					wide := perDay(algorithm, 1_000)
					r.take("old", wide, 1)
					s.ahead += step
					r.take("new", l, 20)
					calls := s.calls
					both := []bucket.Take{{Key: "new", Limit: l, Cost: 1}, {Key: "old", Limit: wide, Cost: 1}}
					alone, got := r.ask(both[0]), r.ask(both...)
					if got.Allowed || s.calls != calls || got.RetryAfter > alone.RetryAfter {
						t.Errorf("allowed: %t, with %d calls, wait %d µs; want a denial without Redis, and at most %d µs",
							got.Allowed, s.calls-calls, got.RetryAfter, alone.RetryAfter)
					}
					_ = r.Close()
				})
			})
		}
	}
}
