package bucket_test

import (
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
