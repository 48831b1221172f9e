package bucket_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestSpreadFailsAtRandom decides random requests in parts, some of which fail before they charge. Such a request
// charges nothing, or its outcome is unknown.
func TestSpreadFailsAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 1))
	unknown := 0
	for leg := range 3000 {
		now := 1_700_000_000_000_000 + random.Int64N(1e12)
		store := buckets{}
		limits := make([]bucket.Limit, 2+random.IntN(4))
		for i := range limits {
			limits[i] = bucket.Limit{
				Algorithm: bucket.Algorithms[random.IntN(len(bucket.Algorithms))],
				Requests:  1 + random.Int64N(8), Burst: 1 + random.Int64N(8), Window: 1 + random.Int64N(2_000_000),
			}
		}
		for step := range 20 {
			now += random.Int64N(500_000)
			r := bucket.Request{At: now}
			for i := range limits {
				r.Add(bucket.Take{
					Key: fmt.Sprint(i), Limit: limits[i], Cost: random.Uint64N(4), CountDenied: random.IntN(3) == 0,
					Role: bucket.Role(random.IntN(3)),
				})
			}
			left := make([]int64, len(limits))
			for i := range limits {
				state := store[fmt.Sprint(i)]
				left[i] = state.Remaining(&limits[i], now)
			}
			s := spread(&r, func(int) int { return random.IntN(3) })
			for _, p := range s.First() {
				if random.IntN(4) == 0 {
					p.Outcome.Err = errors.New("no answer")
					continue
				}
				store.decide(now, &p.Request, &p.Outcome)
			}
			for _, p := range s.Settle() {
				store.decide(now, &p.Request, &p.Outcome)
			}
			var o bucket.Outcome
			if s.Outcome(&o); o.Err == nil {
				continue
			}
			if !s.Settled() {
				unknown++
				continue
			}
			for i := range limits {
				state := store[fmt.Sprint(i)]
				if got := state.Remaining(&limits[i], now); got != left[i] {
					t.Fatalf("seed %d, leg %d, step %d: bucket %d has %d left after a request that failed, want %d\n%+v", seed, leg,
						step, i, got, left[i], r)
				}
			}
		}
	}
	if unknown == 0 {
		t.Error("no denial ever counted in a request that failed")
	}
}
