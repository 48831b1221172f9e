package memstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// hourly is a limit that first allows and then denies in a benchmark.
func hourly(algorithm bucket.Algorithm, n int64) bucket.Limit {
	return bucket.Limit{Algorithm: algorithm, Requests: n, Burst: n, Window: 3_600_000_000}
}

// key returns a key that looks like the keys of the limiter and has their length.
func key(i int) string { return string(appendKey(nil, i)) }

func appendKey(b []byte, i int) []byte { return fmt.Appendf(b, "4:shop|7:api_key#%024d", i) }

// keyBuffer makes keys without an allocation and without a cache miss, as a limiter would.
type keyBuffer []byte

func (k keyBuffer) key(i int) string {
	const digits = 8
	for end := len(k) - 1; end >= len(k)-digits; end, i = end-1, i/10 {
		k[end] = '0' + byte(i%10)
	}
	return unsafe.String(&k[0], len(k)) // the store keeps no reference to a key
}

// oneTake returns a batch of one request with one take without a key, and room for the outcome.
func oneTake(limit bucket.Limit) ([]bucket.Request, []bucket.Outcome) {
	return []bucket.Request{{Takes: []bucket.Take{{Limit: limit, Cost: 1}}}}, make([]bucket.Outcome, 1)
}

func fill(s *memstore.Store, n int, limit bucket.Limit) {
	batch, outcomes := oneTake(limit)
	for i := range n {
		batch[0].Takes[0].Key = key(i)
		s.Start(context.Background(), batch, outcomes, func() {})
	}
}

// BenchmarkTakeExisting takes from one of 1,000 buckets, all in the cache. -cpu 1,2 shows how it scales.
func BenchmarkTakeExisting(b *testing.B) {
	for _, algorithm := range bucket.Algorithms {
		b.Run(algorithm.String(), func(b *testing.B) { benchmarkTake(b, 1000, hourly(algorithm, 1000)) })
	}
}

// BenchmarkTakeUniform takes from one of a million buckets, none of which is in the cache.
func BenchmarkTakeUniform(b *testing.B) {
	benchmarkTake(b, 1_000_000, hourly(bucket.TokenBucket, 1000))
}

// BenchmarkTakeHot takes from one bucket that all goroutines share: first allowed, then denied.
func BenchmarkTakeHot(b *testing.B) { benchmarkTake(b, 1, hourly(bucket.TokenBucket, 1_000_000)) }

// BenchmarkTakeHotBatch takes 16 times from such a bucket in each call, as the requests of one read from a client do.
func BenchmarkTakeHotBatch(b *testing.B) {
	const requests = 16
	limit := hourly(bucket.TokenBucket, 1_000_000)
	s := open(b, memstore.Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		batch, outcomes := make([]bucket.Request, requests), make([]bucket.Outcome, requests)
		for i := range batch {
			batch[i].Takes = []bucket.Take{{Key: key(0), Limit: limit, Cost: 1}}
		}
		for n := 0; pb.Next(); n++ { // b.N counts requests
			if n%requests == 0 {
				s.Start(b.Context(), batch, outcomes, func() {})
			}
		}
	})
}

func benchmarkTake(b *testing.B, buckets int, limit bucket.Limit) {
	s := open(b, memstore.Config{MaxBuckets: 1_100_000})
	fill(s, buckets, limit)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		batch, outcomes := oneTake(limit)
		keys := keyBuffer(key(0))
		random := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for pb.Next() {
			batch[0].Takes[0].Key = keys.key(random.IntN(buckets))
			s.Start(b.Context(), batch, outcomes, func() {})
		}
	})
}

// BenchmarkTakeNew takes from new buckets in a full store: each evicts another.
func BenchmarkTakeNew(b *testing.B) {
	limit := hourly(bucket.TokenBucket, 1000)
	s := open(b, memstore.Config{MaxBuckets: 100_000})
	const filled = 110_000
	fill(s, filled, limit)
	var next atomic.Int64
	next.Store(filled)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		batch, outcomes := oneTake(limit)
		keys := keyBuffer(key(0))
		for pb.Next() {
			batch[0].Takes[0].Key = keys.key(int(next.Add(1)))
			s.Start(b.Context(), batch, outcomes, func() {})
		}
	})
	b.ReportMetric(float64(s.Stats().Evicted)/float64(b.N), "evicted/op")
}

// BenchmarkTakeSeveral takes from five buckets in one request.
func BenchmarkTakeSeveral(b *testing.B) {
	limit := hourly(bucket.TokenBucket, 1000)
	s := open(b, memstore.Config{})
	keys := make([]string, 1000)
	for i := range keys {
		keys[i] = key(i)
	}
	fill(s, len(keys), limit)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		takes := make([]bucket.Take, 5)
		batch, outcomes := []bucket.Request{{Takes: takes}}, make([]bucket.Outcome, 1)
		random := rand.New(rand.NewPCG(rand.Uint64(), 1))
		for pb.Next() {
			first := random.IntN(len(keys))
			for i := range takes {
				takes[i] = bucket.Take{Key: keys[(first+i)%len(keys)], Limit: limit, Cost: 1}
			}
			s.Start(b.Context(), batch, outcomes, func() {})
		}
	})
}

// TestBytesPerBucket checks what a bucket needs with a long key, by algorithm and the requests that a log remembers.
// Other algorithms need the same for any number of units.
func TestBytesPerBucket(t *testing.T) {
	keys := keyBuffer(strings.Repeat("k", 60) + key(0))
	for _, algorithm := range bucket.Algorithms[:testenv.Steps(2, len(bucket.Algorithms))] {
		for _, c := range []struct{ requests, buckets, most int }{
			{1, testenv.Steps(300_000, 1_000_000), 100}, {5, 100_000, 170}, {20, testenv.Steps(25_000, 100_000), 240},
		} {
			if c.requests > 1 && algorithm != bucket.SlidingWindowLog {
				continue
			}
			var now atomic.Int64 // the sweep reads it, too
			now.Store(1_700_000_000_000_000)
			s := open(t, memstore.Config{MaxBuckets: c.buckets, Clock: now.Load})
			before := heap()
			batch, outcomes := oneTake(hourly(algorithm, 1000))
			for range c.requests {
				for i := range c.buckets {
					batch[0].Takes[0].Key = keys.key(i)
					s.Start(t.Context(), batch, outcomes, func() {})
				}
				now.Add(3_000_000)
			}
			kept := s.Stats().Buckets
			if kept < int64(c.buckets*95/100) || kept > int64(c.buckets) {
				t.Fatalf("%v: %d buckets kept of %d, want nearly all", algorithm, kept, c.buckets)
			}
			perBucket := float64(heap()-before) / float64(kept)
			t.Logf("%v, requests: %d: %.1f bytes a bucket, with a key of %d bytes", algorithm, c.requests, perBucket,
				len(keys))
			if perBucket > float64(c.most) {
				t.Errorf("%v, requests: %d: %.1f bytes a bucket, want at most %d", algorithm, c.requests, perBucket, c.most)
			}
			runtime.KeepAlive(s)
		}
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkTakeNewOfManyRules takes from new buckets in a full store with buckets of many rules.
func BenchmarkTakeNewOfManyRules(b *testing.B) {
	limit := hourly(bucket.TokenBucket, 1000)
	for _, rules := range []int{10, 10_000} {
		b.Run(fmt.Sprint(rules), func(b *testing.B) {
			s := open(b, memstore.Config{MaxBuckets: 1_000_000})
			batch, outcomes := oneTake(limit)
			keys := keyBuffer(key(0))
			take := func(i int) {
				batch[0].Takes[0].Key, batch[0].Takes[0].Rule = keys.key(i), uint64(i%rules)
				s.Start(b.Context(), batch, outcomes, func() {})
			}
			const filled = 1_100_000
			for i := range filled {
				take(i)
			}
			i := filled
			b.ReportAllocs()
			for b.Loop() {
				take(i)
				i++
			}
		})
	}
}
