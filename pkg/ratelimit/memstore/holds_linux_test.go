package memstore

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// BenchmarkHolds measures how long a take waits at most for background work. That is the longest time for which the
// sweep or a snapshot holds a lock, or for which a take makes the table of its shard grow. It is CPU time, so that
// other processes add little. Only a snapshot needs keys, whose memory the garbage collector reads.
func BenchmarkHolds(b *testing.B) {
	for _, buckets := range []int{1_000_000, 10_000_000} {
		for _, keys := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d,keys=%t", buckets, keys), func(b *testing.B) {
				for b.Loop() {
					holds(b, buckets, keys)
				}
			})
		}
	}
}

func holds(b *testing.B, buckets int, keys bool) {
	now := int64(1_000_000_000)
	start := now
	s, err := New(Config{MaxBuckets: 2 * buckets, Clock: func() int64 { return start }}) // the background drops nothing
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	s.clock = func() int64 { return now }
	s.keys = keys
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	clock := func() int64 {
		var t unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
			b.Fatal(err)
		}
		return t.Nano()
	}
	longest := func(name string, do func() (more bool)) {
		most := int64(0)
		for more := true; more; {
			began := clock()
			more = do()
			most = max(most, clock()-began)
		}
		b.ReportMetric(float64(most)/1000, name+"-µs")
	}
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 10, Burst: 10, Window: 1_000_000}
	batch, outcomes := []bucket.Request{{Takes: []bucket.Take{{Limit: limit, Cost: 1}}}}, make([]bucket.Outcome, 1)
	taken := 0
	longest("take", func() bool {
		batch[0].Takes[0].Key = fmt.Sprintf("rl:4:shop=7:api_key/t1000000;%032d", taken)
		taken++
		s.Start(context.Background(), batch, outcomes, func() {})
		return taken < buckets
	})
	var content []byte
	at, from, shards := 0, uint32(0), s.table.Shards()
	if keys {
		longest("snapshot", func() bool {
			var more bool
			content, from, more = appendFrom(content[:0], &shards[at], from)
			if !more {
				at, from = at+1, 0
			}
			return at < len(shards)
		})
	}
	now += 10_000_000 // all buckets have expired
	at, from = 0, 0
	longest("sweep", func() bool {
		var more bool
		from, more = shards[at].EachFrom(from, func(slot uint32) bool {
			shards[at].Expire(slot, now)
			return true
		})
		if !more {
			at, from = at+1, 0
		}
		return at < len(shards)
	})
	if left := s.Stats().Buckets; left != 0 {
		b.Errorf("%d buckets are left", left)
	}
}
