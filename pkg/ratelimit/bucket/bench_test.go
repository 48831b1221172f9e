package bucket_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// BenchmarkDecide decides at a rate just below the limit, so that each take is charged and units leave all the time.
func BenchmarkDecide(b *testing.B) {
	for _, algorithm := range bucket.Algorithms {
		b.Run(algorithm.String(), func(b *testing.B) {
			limit := bucket.Limit{Algorithm: algorithm, Requests: 100, Burst: 100, Window: 60_000_000}
			r := &bucket.Request{}
			r.Add(bucket.Take{Key: "k", Limit: limit, Cost: 1})
			loaded, outcome := make([]bucket.Loaded, 1), new(bucket.Outcome)
			now := int64(1_700_000_000_000_000)
			b.ReportAllocs()
			for b.Loop() {
				now += 700_000
				r.Decide(now, loaded, outcome)
			}
		})
	}
}

// BenchmarkHolds decides over a bucket with that many other live holds: plain takes, and pairs of a reserve and its
// settlement. The holds end in the order in which they began, as most do.
func BenchmarkHolds(b *testing.B) {
	for _, live := range []int{0, 1, 10, 100, 1000, 10_000} {
		limit := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1e15 - 1, Window: 3_600_000_000}
		terms := bucket.Hold{TTL: 600_000_000, Most: 1e9}
		loaded, outcome := make([]bucket.Loaded, 1), new(bucket.Outcome)
		now := int64(1_700_000_000_000_000)
		var next, oldest uint64
		reserve, settle := make([]bucket.HoldCost, 1), make([]bucket.HoldCost, 1)
		requests := make([]bucket.Request, 3)
		for i, hold := range []bucket.Hold{
			{TTL: terms.TTL, Most: terms.Most, Reserves: reserve}, {TTL: terms.TTL, Most: terms.Most, Settles: settle}, terms,
		} {
			take := bucket.Take{Key: "k", Limit: limit, Hold: &hold}
			if i == 2 {
				take.Cost = 1
			}
			requests[i].Add(take)
		}
		ask := func(i int) {
			now++
			requests[i].Decide(now, loaded, outcome)
			if !outcome.Allowed {
				b.Fatalf("request %d of a benchmark was denied", i)
			}
		}
		begin := func() {
			next++
			reserve[0] = bucket.HoldCost{Cost: 1}
			binary.LittleEndian.PutUint64(reserve[0].ID[:], next)
			ask(0)
		}
		for range live {
			begin()
		}
		b.Run(fmt.Sprintf("take/%d", live), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				ask(2)
			}
		})
		b.Run(fmt.Sprintf("pair/%d", live), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				begin()
				oldest++
				settle[0] = bucket.HoldCost{Cost: 1}
				binary.LittleEndian.PutUint64(settle[0].ID[:], oldest)
				ask(1)
			}
		})
	}
}

// BenchmarkScript measures what a take costs the caller of the script: its arguments and its answer.
func BenchmarkScript(b *testing.B) {
	for _, algorithm := range bucket.Algorithms {
		var r bucket.Request
		r.Add(bucket.Take{Key: "k", Limit: bucket.Limit{
			Algorithm: algorithm, Requests: 100, Burst: 100, Window: 60_000_000,
		}, Cost: 1})
		b.Run("arguments/"+algorithm.String(), func(b *testing.B) {
			b.ReportAllocs()
			var args []byte
			for b.Loop() {
				args = r.AppendArgs(args[:0], bucket.WithNotes, 0)
			}
		})
		b.Run("answer/"+algorithm.String(), func(b *testing.B) {
			line := "+\t1" + map[bucket.Algorithm]string{
				bucket.SlidingWindowLog:     "s1 1700000000000000 3 0 900000 19 0:1 400000:1 500000:1 ",
				bucket.SlidingWindowCounter: "c1 1700000000000000 20 33",
				bucket.TokenBucket:          "b1 1700000000000000 5400000",
				bucket.LeakyBucket:          "b1 1700000000000000 5400000",
				bucket.FixedWindow:          "f1 1700000000000000 20",
			}[algorithm]
			var o bucket.Outcome
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Decode(line, bucket.Reply{Clock: 1_700_000_000_000_000}, &o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
