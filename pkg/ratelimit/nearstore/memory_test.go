package nearstore_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// unused is a shared store whose buckets are all unused, so that it needs no memory.
type unused struct {
	older int // grants that each log has before a take, one each 3 s
}

// Start implements nearstore.Shared.
func (u unused) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	sent := time.Now()
	var loaded [1]bucket.Loaded
	for i := range requests {
		loaded[0] = bucket.Loaded{}
		if u.older > 0 {
			loaded[0].State = logOf(u.older, sent.UnixMicro())
		}
		o := &outcomes[i]
		requests[i].Decide(sent.UnixMicro(), loaded[:], o)
		reply := bucket.Reply{Clock: sent.UnixMicro(), Sent: sent, Received: sent}
		o.Seen = append(o.Seen, bucket.Seen{State: loaded[0].State, Reply: reply})
	}
}

// logOf returns a log of n grants, one each 3 s until now.
func logOf(n int, now int64) bucket.State {
	s := bucket.State{Last: now, Count: int64(n)}
	for i := range n {
		s.Grants = append(s.Grants, bucket.Grant{At: now - int64(3_000_000*(n-i)), Cost: 1})
	}
	return s
}

// Epoch implements nearstore.Shared.
func (unused) Epoch(*bucket.Take) uint64 { return 1 }

// Suspect implements nearstore.Shared.
func (unused) Suspect(*bucket.Take) {}

func openUnused(t testing.TB, cfg nearstore.Config) *nearstore.Store {
	t.Helper()
	if cfg.Shared == nil {
		cfg.Shared = unused{}
	}
	s, err := nearstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fill takes from n buckets once each.
func fill(s *nearstore.Store, from, n int, l bucket.Limit, cost uint64) {
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	for i := range n {
		requests[0].Takes = requests[0].Takes[:0]
		requests[0].Add(bucket.Take{Key: fmt.Sprint("bucket ", from+i), Rule: 1, Limit: l, Cost: cost})
		ratelimit.Take(context.Background(), s, requests, outcomes)
	}
}

// TestMemory measures what a remembered bucket needs beyond the hash of its key: at most 150 bytes. A log that
// remembers several requests needs some 4 bytes for each of them in addition, and 24 for all.
func TestMemory(t *testing.T) {
	const hash = 16
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for _, algorithm := range bucket.Algorithms[:testenv.Steps(2, len(bucket.Algorithms))] {
		for _, c := range []struct{ requests, buckets, most int64 }{
			{1, int64(testenv.Steps(150_000, 400_000)), 150}, {20, int64(testenv.Steps(75_000, 200_000)), 300},
		} {
			if c.requests > 1 && algorithm != bucket.SlidingWindowLog {
				continue
			}
			shared := unused{older: int(c.requests - 1)}
			s := openUnused(t, nearstore.Config{Shared: shared, MaxBuckets: int(c.buckets) * 5 / 2})
			before := heap()
			fill(s, 0, int(c.buckets), perDay(algorithm, 20), 1)
			each := (heap()-before)/c.buckets - hash
			if got := s.Stats().Memory.Buckets; got != c.buckets {
				t.Fatalf("%v: %d buckets are remembered, want %d", algorithm, got, c.buckets)
			}
			t.Logf("%v, requests: %d: %d bytes beyond the hash", algorithm, c.requests, each)
			if each > c.most {
				t.Errorf("%v, requests: %d: a bucket needs %d bytes beyond the hash of its key, want at most %d", algorithm,
					c.requests, each, c.most)
			}
		}
	}
}

// TestFlood makes new buckets for many keys, in the long form for a million. Those that are used up stay, because the
// others have more left.
func TestFlood(t *testing.T) {
	t.Parallel()
	most, used, keys := testenv.Steps(4_000, 20_000), testenv.Steps(100, 500), testenv.Steps(200_000, 1_000_000)
	s := openUnused(t, nearstore.Config{MaxBuckets: most, DenialCache: true})
	l := perDay(bucket.TokenBucket, 10)
	fill(s, 0, used, l, 10)
	fill(s, used, keys, l, 1)
	if got := s.Stats().Memory.Buckets; got > int64(most) {
		t.Errorf("%d buckets are remembered, want at most %d", got, most)
	}
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	for i := range used {
		requests[0].Takes = requests[0].Takes[:0]
		requests[0].Add(bucket.Take{Key: fmt.Sprint("bucket ", i), Rule: 1, Limit: l, Cost: 1})
		if ratelimit.Take(context.Background(), s.Local(), requests, outcomes); outcomes[0].Allowed {
			t.Fatalf("bucket %d was used up, and has been forgotten", i)
		}
	}
}
