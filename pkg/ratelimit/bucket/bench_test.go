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
