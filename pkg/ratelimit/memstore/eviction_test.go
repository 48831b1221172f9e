package memstore_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/test/testenv"
)

const (
	second = 1_000_000
	minute = 60 * second
	hour   = 60 * minute
)

// clock is a time that changes only when it is set.
type clock struct{ micros atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.micros.Store(1_700_000_000 * second)
	return c
}

func (c *clock) now() int64 { return c.micros.Load() }

func (c *clock) advance(micros int64) { c.micros.Add(micros) }

func take(t *testing.T, s *memstore.Store, takes ...bucket.Take) bucket.Outcome {
	t.Helper()
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	for _, asked := range takes {
		requests[0].Add(asked)
	}
	s.Start(t.Context(), requests, outcomes, func() {})
	if outcomes[0].Err != nil {
		t.Fatal(outcomes[0].Err)
	}
	return outcomes[0]
}

// TestEvictionOrder fills a store of few buckets, so that all are samples, and adds one.
func TestEvictionOrder(t *testing.T) {
	token := func(n, windowSeconds int64) bucket.Limit {
		return bucket.Limit{Algorithm: bucket.TokenBucket, Requests: n, Burst: n, Window: windowSeconds * second}
	}
	fixed := func(n, windowSeconds int64) bucket.Limit {
		return bucket.Limit{Algorithm: bucket.FixedWindow, Requests: n, Window: windowSeconds * second}
	}
	type used struct {
		limit bucket.Limit
		cost  uint64
		rule  uint64 // the rule of the new bucket is 0
	}
	for _, test := range []struct {
		name    string
		buckets []used
		wait    int64 // before the new bucket comes
		evicted int   // the index of the evicted bucket
	}{
		{"the one with the most left", []used{
			{limit: token(10, 3600), cost: 9}, {limit: token(10, 3600), cost: 2}, {limit: token(10, 3600), cost: 3},
		}, 0, 1},
		{"the greatest part of its limit, not the most units", []used{
			{limit: token(10, 3600), cost: 2}, {limit: token(1000, 3600), cost: 300},
		}, 0, 0},
		{"the state now, not the state of the last use", []used{
			{limit: token(10, 3600), cost: 3}, {limit: token(10, 60), cost: 9},
		}, 50 * second, 1},
		{"an expired one before a hardly used one", []used{
			{limit: token(1000, 3600), cost: 100}, {limit: fixed(10, 60), cost: 10},
		}, 2 * minute, 1},
		{"an exhausted one that expires soon stays", []used{
			{limit: token(10, 3600), cost: 9}, {limit: fixed(10, 3600), cost: 10},
		}, 0, 0},
		{"the exhausted one that expires first", []used{
			{limit: fixed(10, 3600), cost: 10}, {limit: fixed(10, 600), cost: 10}, {limit: token(1, 3600), cost: 1},
		}, 0, 1},
		{"the only one", []used{{limit: fixed(10, 3600), cost: 10}}, 0, 0},
		{"one of eight", []used{
			{limit: token(10, 3600), cost: 9}, {limit: token(10, 3600), cost: 9},
			{limit: token(10, 3600), cost: 9}, {limit: token(10, 3600), cost: 9},
			{limit: token(10, 3600), cost: 9}, {limit: token(10, 3600), cost: 9},
			{limit: token(10, 3600), cost: 8}, {limit: token(10, 3600), cost: 9},
		}, 0, 6},
		{"one of the rule with the most buckets", []used{
			{limit: token(10, 3600), cost: 1, rule: 1},
			{limit: token(1, 3600), cost: 1, rule: 2}, {limit: token(10, 3600), cost: 9, rule: 2},
			{limit: token(1, 3600), cost: 1, rule: 2},
			{limit: token(10, 3600), cost: 1, rule: 3}, {limit: token(10, 3600), cost: 1, rule: 3},
		}, 0, 2},
		{"one of its own rule when that has as many as any other", []used{
			{limit: token(10, 3600), cost: 1, rule: 1}, {limit: token(10, 3600), cost: 1, rule: 1},
			{limit: token(1, 3600), cost: 1},
			{limit: token(1, 7200), cost: 1},
		}, 0, 2},
		{"one of its own rule when that has one less, since it adds one", []used{
			{limit: token(10, 3600), cost: 1, rule: 1}, {limit: token(10, 3600), cost: 1, rule: 1},
			{limit: token(1, 3600), cost: 1},
		}, 0, 2},
		{"one of a rule that has two more", []used{
			{limit: token(1, 3600), cost: 1, rule: 1}, {limit: token(1, 1800), cost: 1, rule: 1},
			{limit: token(1, 3600), cost: 1, rule: 1},
			{limit: token(10, 60), cost: 1},
		}, 0, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := newClock()
			s := open(t, memstore.Config{MaxBuckets: len(test.buckets), Clock: now.now})
			for i, b := range test.buckets {
				take(t, s, bucket.Take{Key: key(i), Rule: b.rule, Limit: b.limit, Cost: b.cost})
			}
			now.advance(test.wait)
			newcomer := bucket.Take{Key: "newcomer", Limit: token(10, 3600), Cost: 1}
			take(t, s, newcomer)

			want, got := map[int]bool{test.evicted: true}, map[int]bool{}
			for i, b := range test.buckets {
				if d := take(t, s, bucket.Take{Key: key(i), Limit: b.limit}).Decisions[0]; d.ExpireAt == 0 {
					got[i] = true
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("which buckets were forgotten (-want +got):\n%s", diff)
			}
			newcomer.Cost = 0
			if left := take(t, s, newcomer).Decisions[0].Remaining; left != 9 {
				t.Errorf("the new bucket has %d of 10 left after a cost of 1, want 9", left)
			}
		})
	}
}

// TestExhaustedSurviveAFlood checks that clients over their limit stay over it during a flood of new keys.
func TestExhaustedSurviveAFlood(t *testing.T) {
	const buckets, exhausted, flood = 10_000, 500, 40_000
	now := newClock()
	s := open(t, memstore.Config{MaxBuckets: buckets, Clock: now.now})
	limit := hourly(bucket.SlidingWindowCounter, 10)
	for i := range exhausted {
		take(t, s, bucket.Take{Key: fmt.Sprint("exhausted ", i), Limit: limit, Cost: 10})
	}
	for i := range flood {
		take(t, s, bucket.Take{Key: key(i), Limit: limit, Cost: 1})
	}
	forgotten := 0
	for i := range exhausted {
		if take(t, s, bucket.Take{Key: fmt.Sprint("exhausted ", i), Limit: limit, Need: 1}).Allowed {
			forgotten++
		}
	}
	// An eviction takes an exhausted bucket only if all 8 samples are exhausted: with 1 in 20, once in 2.5e10.
	if forgotten > 0 {
		t.Errorf("%d of %d exhausted buckets were forgotten in a flood of %d keys", forgotten, exhausted, flood)
	}
	if stats := s.Stats(); stats.Buckets > buckets || stats.Evicted < flood-buckets {
		t.Errorf("%+v after %d keys in a store of %d", stats, flood+exhausted, buckets)
	}
}

// TestBound checks that a store never has more buckets than MaxBuckets, and nearly as many if enough come.
func TestBound(t *testing.T) {
	for _, bound := range []int{1, 2, 7, 10, 100, 1023, 1024, 5000, 20_001} {
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			s := open(t, memstore.Config{MaxBuckets: bound})
			var all sync.WaitGroup
			for g := range 4 {
				all.Go(func() {
					limits := []bucket.Limit{hourly(bucket.TokenBucket, 10), hourly(bucket.SlidingWindowLog, 10)}
					for i := range bound {
						var takes []bucket.Take
						for n := range 3 {
							takes = append(takes, bucket.Take{Key: key(3*i + n + g), Limit: limits[(3*i+n+g)%2], Cost: 1})
						}
						if o := take(t, s, takes...); !o.Allowed && o.RetryAfter == 0 {
							t.Errorf("a denial without a wait: %+v", o)
						}
					}
				})
			}
			all.Wait()
			if got := s.Stats().Buckets; got > int64(bound) || got < int64(bound)*9/10 {
				t.Errorf("%d buckets kept, want at most %d and nearly as many", got, bound)
			}
		})
	}
}

// TestSweep checks that the sweep drops a bucket soon after its full quota is available, but not before.
func TestSweep(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const buckets = 5_000
				s := open(t, memstore.Config{})
				limit := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: minute}
				var lastUntil int64
				for i := range buckets {
					d := take(t, s, bucket.Take{Key: key(i), Limit: limit, Cost: 5}).Decisions[0]
					lastUntil = max(lastUntil, d.ResetAfter)
				}
				time.Sleep(time.Duration(lastUntil)*time.Microsecond - 1)
				synctest.Wait()
				if got := s.Stats(); got.Buckets != buckets || got.Expired != 0 {
					t.Fatalf("%+v just before the full quota is there again, want %d buckets", got, buckets)
				}
				time.Sleep(10*time.Second + 3*time.Second) // a sweep, and the grace of an entry
				synctest.Wait()
				if got := s.Stats(); got.Buckets != 0 || got.Expired != buckets || got.Evicted != 0 {
					t.Fatalf("%+v after a sweep, want 0 buckets and %d expired", got, buckets)
				}
				for i := range buckets / 2 { // the slots are reused
					take(t, s, bucket.Take{Key: key(-i - 1), Limit: limit, Cost: 1})
				}
				if got := s.Stats().Buckets; got != buckets/2 {
					t.Errorf("%d buckets after %d new keys", got, buckets/2)
				}
			})
		})
	}
}

// TestCloseEndsAllGoroutines relies on the bubble, which reports any goroutine that is left. The store still decides.
func TestCloseEndsAllGoroutines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustNew(t, memstore.Config{SnapshotPath: filepath.Join(t.TempDir(), "buckets")})
		time.Sleep(time.Hour)
		mustClose(t, s)
		mustClose(t, s)
		if !take(t, s, bucket.Take{Key: "k", Limit: hourly(bucket.LeakyBucket, 1), Cost: 1}).Allowed {
			t.Error("after Close a take that fits is denied")
		}
	})
}

// TestEmptyBucketIsDropped checks that a bucket without charges needs no memory.
func TestEmptyBucketIsDropped(t *testing.T) {
	now := newClock()
	s := open(t, memstore.Config{Clock: now.now})
	for _, algorithm := range bucket.Algorithms {
		limit := hourly(algorithm, 10)
		take(t, s, bucket.Take{Key: algorithm.String(), Limit: limit, Cost: 7})
		take(t, s, bucket.Take{Key: algorithm.String(), Limit: limit, Refund: 7})
		take(t, s, bucket.Take{Key: algorithm.String() + " peeked", Limit: limit, Need: 1})
		take(t, s, bucket.Take{Key: algorithm.String() + " denied", Limit: limit, Cost: 11})
	}
	if got := s.Stats().Buckets; got != 0 {
		t.Errorf("%d buckets kept, none of which holds anything", got)
	}
}

func TestWrongConfig(t *testing.T) {
	_, err := memstore.New(memstore.Config{MaxBuckets: -1, SnapshotInterval: -time.Second})
	want := "memory store: at most -1 buckets: want 1 to 1073741824\n" +
		"a snapshot interval of -1s: want more than 0"
	if err == nil || err.Error() != want {
		t.Errorf("New: %v\nwant: %s", err, want)
	}
}

// TestFloodOfAnotherRule floods a small store with new keys of one rule. The clients of another rule get the same
// answers as from a large store. The windows of the flood, and how much of them is used, do not matter.
func TestFloodOfAnotherRule(t *testing.T) {
	const clients, perRequest = 50, 3
	requests := testenv.Steps(1_000, 4_000)
	const flooded, attacked = 1, 2
	const day = 24 * hour
	for _, flood := range []struct {
		name  string
		limit bucket.Limit
		cost  uint64
	}{
		{"longer windows, hardly used", bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1000, Window: day}, 1},
		{"longer windows, used up", bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: day}, 1},
		{"longer windows, used twice over",
			bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 1, Window: day}, 2},
		{"the same windows, used up", bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 5, Window: 10 * second}, 5},
		{"shorter windows, used up", bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: second}, 1},
	} {
		for _, algorithm := range bucket.Algorithms {
			t.Run(flood.name+"/"+algorithm.String(), func(t *testing.T) {
				now := newClock()
				small := open(t, memstore.Config{MaxBuckets: 200, Clock: now.now})
				large := open(t, memstore.Config{MaxBuckets: 1_000_000, Clock: now.now})
				limit := bucket.Limit{Algorithm: algorithm, Requests: 5, Burst: 5, Window: 10 * second}
				extra, different := 0, 0
				for i := range requests {
					now.advance(10_000) // a client makes 2 requests a second, 4 times its limit
					for n := range perRequest {
						take(t, small, bucket.Take{
							Key: key(i*perRequest + n), Rule: flooded, Limit: flood.limit, Cost: flood.cost, CountDenied: true,
						})
					}
					asked := bucket.Take{Key: fmt.Sprint("client ", i%clients), Rule: attacked, Limit: limit, Cost: 1}
					got, want := take(t, small, asked), take(t, large, asked)
					if got.Allowed && !want.Allowed {
						extra++
					}
					if got.Decisions[0] != want.Decisions[0] {
						different++
					}
				}
				if extra > 0 || different > 0 {
					t.Errorf("of %d requests the flood let %d more pass, and changed %d answers", requests, extra, different)
				}
				if evicted := small.Stats().Evicted; evicted < uint64(requests) {
					t.Errorf("the flood displaced %d buckets: it is none", evicted)
				}
			})
		}
	}
}

// TestFloodAfterARestart checks that a snapshot holds the rules of buckets, so that a flood after a restart also
// displaces its own.
func TestFloodAfterARestart(t *testing.T) {
	const buckets, clients = 1000, 50
	now := newClock()
	cfg := memstore.Config{MaxBuckets: buckets, Clock: now.now, SnapshotPath: filepath.Join(t.TempDir(), "buckets")}
	daily := bucket.Limit{Algorithm: bucket.FixedWindow, Requests: 1, Window: 24 * hour}
	short := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 5, Burst: 5, Window: 10 * minute}
	flood := func(s *memstore.Store, from int) {
		for i := range 2 * buckets {
			take(t, s, bucket.Take{Key: key(from + i), Rule: 1, Limit: daily, Cost: 1})
		}
	}
	s := mustNew(t, cfg)
	for i := range clients {
		take(t, s, bucket.Take{Key: fmt.Sprint("client ", i), Rule: 2, Limit: short, Cost: 5})
	}
	flood(s, 0)
	mustClose(t, s)
	s = open(t, cfg)
	flood(s, 2*buckets)
	for i := range clients {
		if take(t, s, bucket.Take{Key: fmt.Sprint("client ", i), Rule: 2, Limit: short, Need: 1}).Allowed {
			t.Errorf("client %d has its quota back", i)
		}
	}
}
