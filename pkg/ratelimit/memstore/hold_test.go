package memstore_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
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

// atOnce is a concurrency limit.
func atOnce(n int64) bucket.Limit { return bucket.Limit{Algorithm: bucket.Concurrency, Requests: n} }

// terms are those of holds that live for 10 minutes.
func terms() bucket.Hold { return bucket.Hold{TTL: 10 * minute, Most: 10_000} }

func holdID(n int) (id bucket.HoldID) {
	binary.LittleEndian.PutUint64(id[:], uint64(n))
	return id
}

// reserving returns a take that reserves one hold.
func reserving(key string, limit bucket.Limit, id int, cost uint64) bucket.Take {
	h := terms()
	h.Reserves = []bucket.HoldCost{{ID: holdID(id), Cost: cost}}
	return bucket.Take{Key: key, Limit: limit, Hold: &h}
}

func settling(key string, limit bucket.Limit, id int, cost uint64) bucket.Take {
	h := terms()
	h.Settles = []bucket.HoldCost{{ID: holdID(id), Cost: cost}}
	return bucket.Take{Key: key, Limit: limit, Hold: &h}
}

// looking returns a take that only looks at a bucket and its holds.
func looking(key string, limit bucket.Limit) bucket.Take {
	h := terms()
	return bucket.Take{Key: key, Limit: limit, Need: 1, Hold: &h}
}

// TestMaxHolds fills a store with holds.
func TestMaxHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		s := open(t, memstore.Config{MaxHolds: most})
		limit := hourly(bucket.FixedWindow, 1000)
		for i := range most - 1 {
			if !take(t, s, reserving(key(i), limit, i, 5)).Allowed {
				t.Fatalf("hold %d of at most %d was denied", i, most)
			}
		}
		both := take(t, s, reserving("a", limit, 1, 5), reserving("b", limit, 1, 5))
		if both.Allowed || both.RetryAfter == 0 {
			t.Errorf("two more holds than there is room for: %+v", both)
		}
		if !take(t, s, reserving(key(0), limit, most, 5)).Allowed {
			t.Error("the last hold was denied")
		}
		denied := take(t, s, reserving(key(0), limit, most+1, 5))
		if denied.Allowed || denied.RetryAfter != second {
			t.Errorf("a hold in a full store: %+v, want it denied for a second", denied)
		}
		for name, taken := range map[string]bucket.Take{
			"a plain take": {Key: key(0), Limit: limit, Cost: 1}, "a look": looking(key(0), limit),
			"a reserve of 0": reserving(key(0), limit, 1, 0),
		} {
			if !take(t, s, taken).Allowed {
				t.Errorf("%s in a store full of holds was denied", name)
			}
		}
		if got := s.Stats(); got.Holds != most || got.FullHolds != 2 {
			t.Errorf("%+v, want %d holds, and 2 reserves that found no room", got, most)
		}
		take(t, s, settling(key(1), limit, 1, 3))
		if !take(t, s, reserving(key(0), limit, most+2, 5)).Allowed {
			t.Error("denied although a hold was settled")
		}
		time.Sleep(10*time.Minute + 11*time.Second) // all have expired, and no request met them
		synctest.Wait()
		if got := s.Stats(); got.Holds > most*3/4 {
			t.Errorf("%d holds that have expired keep the room of others", got.Holds)
		}
		if !take(t, s, reserving("new", limit, 1, 5)).Allowed {
			t.Error("denied although all other holds have expired")
		}
		if d := take(t, s, looking(key(0), limit)).Decisions[0]; d.Remaining != 1000-3*5-1 {
			t.Errorf("%d of 1000 remain, want what three expired holds and a take of 1 leave", d.Remaining)
		}
	})
}

// TestHoldsKeepTheirBucket checks that a bucket with holds alone lives as long as the last one. All holds leave the
// count when they end: by a settlement, by their expiry, and with their bucket.
func TestHoldsKeepTheirBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, memstore.Config{})
		for i := range 1000 {
			take(t, s, reserving(key(i), atOnce(3), 1, 1))
		}
		for i := range 100 {
			take(t, s, reserving(key(i), atOnce(3), 2, 1))
			take(t, s, settling(key(i), atOnce(3), 1, 1))
			take(t, s, settling(key(i), atOnce(3), 2, 1))
		}
		if got := s.Stats(); got.Holds != 900 || got.Buckets != 900 {
			t.Errorf("%+v, want 900 holds in as many buckets", got)
		}
		time.Sleep(10*time.Minute - 1)
		synctest.Wait()
		if got := s.Stats(); got.Holds != 900 || got.Buckets != 900 {
			t.Errorf("%+v just before they expire, want 900 holds in as many buckets", got)
		}
		time.Sleep(13 * time.Second)
		synctest.Wait()
		if got := s.Stats(); got.Holds != 0 || got.Buckets != 0 || got.EvictedHolds != 0 {
			t.Errorf("%+v after they expired, want none", got)
		}
	})
}

// TestBucketsWithHoldsAreEvictedLast floods a store whose most used buckets have no holds.
func TestBucketsWithHoldsAreEvictedLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const buckets, holding = 500, 450
		var log bytes.Buffer
		s := open(t, memstore.Config{MaxBuckets: buckets, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		limit := hourly(bucket.TokenBucket, 10)
		for i := range holding {
			take(t, s, reserving(fmt.Sprint("holds ", i), limit, 1, 1))
		}
		for i := range 5000 {
			take(t, s, bucket.Take{Key: key(i), Limit: limit, Cost: 10})
		}
		if got := s.Stats(); got.Holds != holding || got.EvictedHolds != 0 || got.Evicted != 5000-(buckets-holding) {
			t.Errorf("%+v, want no hold evicted", got)
		}
		for i := range buckets {
			take(t, s, reserving(fmt.Sprint("more ", i), limit, 1, 1))
			if i == buckets/2 {
				time.Sleep(15 * time.Second)
				synctest.Wait()
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := s.Stats(); got.Holds != buckets || got.EvictedHolds != holding {
			t.Errorf("%+v, want %d holds, and %d evicted", got, buckets, holding)
		}
		if n := strings.Count(log.String(), "level=ERROR"); n != 2 || !strings.Contains(log.String(), "MEMORY_MAX_BUCKETS") {
			t.Errorf("%d errors were logged in two minutes, want one a minute with the remedy:\n%s", n, &log)
		}
	})
}

// TestRuleThatLostHold checks that plain takes leave the holds of a bucket as they are.
func TestRuleThatLostHold(t *testing.T) {
	now := newClock()
	s := open(t, memstore.Config{Clock: now.now})
	for _, algorithm := range bucket.Algorithms {
		limit := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: second}
		plain := bucket.Take{Key: algorithm.String(), Limit: limit, Cost: 2}
		take(t, s, reserving(plain.Key, limit, 1, 4))
		if got := take(t, s, plain).Decisions[0]; got.Remaining != 8 || got.Held != nil {
			t.Errorf("%v: %+v of a rule without hold, want 8 of 10 to remain", algorithm, got)
		}
		refund := plain
		refund.Cost, refund.Refund = 0, 2
		take(t, s, refund)
		now.advance(2 * second) // the state has expired, its hold has not
		memstore.Sweep(s)
		if got := take(t, s, looking(plain.Key, limit)).Decisions[0]; got.Held.Units != 4 || got.Remaining != 6 {
			t.Errorf("%v: %+v, %+v when the rule has hold again, want 4 units held", algorithm, got, got.Held)
		}
		now.advance(10*minute + 5*second)
		memstore.Sweep(s)
	}
	if got := s.Stats(); got.Buckets != 0 || got.Holds != 0 {
		t.Errorf("%+v after all have expired", got)
	}
}

// TestSnapshotOfHolds checks that a store that was closed and opened again decides on holds as one that was not.
func TestSnapshotOfHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "buckets")
	now := newClock()
	cfg := memstore.Config{SnapshotPath: path, Clock: now.now}
	s, other := mustNew(t, cfg), open(t, memstore.Config{Clock: now.now})
	both := func(what string, taken bucket.Take) {
		t.Helper()
		got, want := take(t, s, taken), take(t, other, taken)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(bucket.Held{}, bucket.State{}, bucket.Holds{})); diff != "" {
			t.Fatalf("%s (-never closed +reopened):\n%s", what, diff)
		}
	}
	algorithms := append([]bucket.Algorithm{bucket.Concurrency}, bucket.Algorithms...)
	limit := func(a bucket.Algorithm) bucket.Limit {
		if a == bucket.Concurrency {
			return atOnce(1000)
		}
		return hourly(a, 1000)
	}
	for round := range 3 {
		for _, a := range algorithms {
			for i := range 30 { // with an index
				both("reserve", reserving(a.String(), limit(a), i%20, uint64(i+1)))
				now.advance(second)
			}
			both("plain", bucket.Take{Key: a.String(), Limit: limit(a), Cost: 3})
		}
		before := s.Stats()
		mustClose(t, s)
		s = mustNew(t, cfg)
		if after := s.Stats(); after.Buckets != before.Buckets || after.Holds != before.Holds {
			t.Fatalf("%d buckets with %d holds before Close, %d with %d after New",
				before.Buckets, before.Holds, after.Buckets, after.Holds)
		}
		for _, a := range algorithms {
			for i := range 25 {
				both("settle", settling(a.String(), limit(a), i, uint64(i)))
			}
			both("look", looking(a.String(), limit(a)))
		}
		now.advance(3*minute + int64(round)*8*minute)
	}
	for i := range 10 {
		take(t, s, reserving(key(i), hourly(bucket.FixedWindow, 10), 1, 7))
	}
	for id := range 2 {
		take(t, s, reserving("at once", atOnce(2), id, 1))
	}
	mustClose(t, s)
	cfg.MaxHolds = 4
	s = open(t, cfg)
	if take(t, s, reserving("at once", atOnce(2), 3, 1)).Allowed {
		t.Error("a third at once, after a restart with a smaller MaxHolds")
	}
	if take(t, s, reserving("new", hourly(bucket.FixedWindow, 10), 1, 1)).Allowed {
		t.Error("a hold beyond MaxHolds")
	}
	for i := range 10 {
		if got := take(t, s, looking(key(i), hourly(bucket.FixedWindow, 10))).Decisions[0].Remaining; got != 3 {
			t.Errorf("%d of 10 remain, want 3: a smaller MaxHolds ends no hold", got)
		}
	}
}

// TestHoldsAtOnce reserves and settles from many goroutines. No limit and no bound is exceeded.
func TestHoldsAtOnce(t *testing.T) {
	const callers, slots, keys = 8, 3, 4
	s := open(t, memstore.Config{})
	var running [keys]atomic.Int64
	var all sync.WaitGroup
	for g := range callers {
		all.Go(func() {
			for i := range 3000 {
				k := i % keys
				if !take(t, s, reserving(key(k), atOnce(slots), g, 1)).Allowed {
					continue
				}
				if n := running[k].Add(1); n > slots {
					t.Errorf("%d at once, want at most %d", n, slots)
				}
				running[k].Add(-1)
				if d := take(t, s, settling(key(k), atOnce(slots), g, 1)).Decisions[0]; d.Held.Settled != 1 {
					t.Errorf("a hold was lost: %+v", d.Held)
				}
			}
		})
	}
	all.Wait()
	if got := s.Stats(); got.Holds != 0 || got.Buckets != 0 {
		t.Errorf("%+v after all were settled", got)
	}
}

// TestDryHolds checks that a dry request shows the holds of a bucket, and changes none.
func TestDryHolds(t *testing.T) {
	s := open(t, memstore.Config{})
	take(t, s, reserving("k", atOnce(2), 1, 1))
	ask := reserving("k", atOnce(2), 2, 1)
	ask.Hold.Settles = []bucket.HoldCost{{ID: holdID(1)}}
	for range 2 {
		requests, outcomes := []bucket.Request{{Takes: []bucket.Take{ask}, Dry: true}}, make([]bucket.Outcome, 1)
		s.Start(t.Context(), requests, outcomes, func() {})
		o := outcomes[0]
		live := o.Seen[0].State.Holds.Live()
		if o.Decisions[0].Held.Settled != 1 || len(live) != 1 || live[0].ID != holdID(1) {
			t.Errorf("%+v, %+v, seen %v; want the hold of before", o, o.Decisions[0].Held, live)
		}
	}
}

// TestBytesPerHold checks what holds need beyond the entry of their bucket.
func TestBytesPerHold(t *testing.T) {
	for _, c := range []struct{ buckets, holds, most int }{
		{testenv.Steps(20_000, 100_000), 1, 136}, {testenv.Steps(4_000, 20_000), 10, 64},
		{testenv.Steps(60, 300), 1000, 64}, {testenv.Steps(6, 30), 10_000, 64},
	} {
		var now atomic.Int64
		now.Store(1_700_000_000_000_000)
		s := open(t, memstore.Config{MaxBuckets: c.buckets * 2, Clock: now.Load})
		limit := hourly(bucket.FixedWindow, 1_000_000)
		fill(s, c.buckets, limit)
		heap() // what earlier tests have left needs two cycles
		before := heap()
		batch, outcomes := oneTake(limit)
		for n := range c.holds {
			h := reserving("", limit, n, 1)
			batch[0].Takes[0].Cost, batch[0].Takes[0].Hold = 0, h.Hold
			for i := range c.buckets {
				batch[0].Takes[0].Key = key(i)
				s.Start(t.Context(), batch, outcomes, func() {})
			}
		}
		perHold := float64(heap()-before) / float64(s.Stats().Holds)
		t.Logf("%d buckets with %d holds each: %.1f bytes a hold", c.buckets, c.holds, perHold)
		if perHold > float64(c.most) || s.Stats().Holds != int64(c.buckets*c.holds) {
			t.Errorf("%d holds of %.1f bytes, want at most %d bytes", s.Stats().Holds, perHold, c.most)
		}
		runtime.KeepAlive(s)
	}
}

// TestHoldsOfAnEvictedBucket reserves in a bucket that another take of the request displaces, and that has a debt of an
// earlier limit.
func TestHoldsOfAnEvictedBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, algorithm := range []bucket.Algorithm{bucket.LeakyBucket, bucket.TokenBucket} {
			var left []int64
			for _, buckets := range []int{1, 100} { // with 100, nothing is evicted
				s := open(t, memstore.Config{MaxBuckets: buckets})
				limit := hourly(algorithm, 10)
				take(t, s, bucket.Take{Key: "b", Limit: limit, Cost: 5})
				limit.Requests, limit.Burst = 20, 20
				if both := take(t, s, bucket.Take{Key: "a", Limit: limit, Cost: 1}, reserving("b", limit, 1, 1)); !both.Allowed {
					t.Fatalf("%+v", both)
				}
				left = append(left, take(t, s, looking("b", limit)).Decisions[0].Remaining)
			}
			if left[0] != left[1] {
				t.Errorf("%v: %d units are left after an eviction, %d without one", algorithm, left[0], left[1])
			}
		}
	})
}

// TestSnapshotOfAnOlderDebt saves a bucket whose limit was raised since its last charge, and in which only holds have
// changed. Its limit of then and the burst of now would be no valid limit.
func TestSnapshotOfAnOlderDebt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "snapshot")
	s, err := memstore.New(memstore.Config{SnapshotPath: path})
	if err != nil {
		t.Fatal(err)
	}
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1000, Burst: 1000, Window: 30 * 24 * 60 * minute}
	take(t, s, bucket.Take{Key: "b", Limit: limit, Cost: 500})
	limit.Requests, limit.Burst = 2_000_000, 2_000_000
	want := take(t, s, reserving("b", limit, 1, 1)).Decisions[0].Remaining
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = memstore.New(memstore.Config{SnapshotPath: path}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got := take(t, s, looking("b", limit)).Decisions[0]
	if got.Remaining < want || got.Remaining > want+10_000 || got.Held.Units != 1 {
		t.Errorf("%+v, want %d left and 1 held", got, want)
	}
}
