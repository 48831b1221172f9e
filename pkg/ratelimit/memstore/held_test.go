package memstore_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// TestHeldIsAMap makes the same random changes to a store and to a map.
func TestHeldIsAMap(t *testing.T) {
	var clock atomic.Int64 // the store sweeps in the background
	clock.Store(1_000_000_000)
	s := open(t, memstore.Config{Clock: clock.Load})
	want := map[[memstore.HeldKey]byte]memstore.Held{}
	for step := range 10_000 {
		clock.Add(rand.Int64N(3))
		held := make([]memstore.Held, 1+rand.IntN(3))
		for i := range held {
			held[i].Key, held[i].Rule = heldKey(3*rand.IntN(500)+i), uint64(rand.IntN(5))
		}
		s.Edit(held, func(now int64) {
			for i := range held {
				h := &held[i]
				known, found := want[h.Key]
				if known.Key, known.Rule = h.Key, h.Rule; found != h.Found {
					t.Fatalf("step %d: found %t, want %t", step, h.Found, found)
				}
				if !reflect.DeepEqual(known, *h) { // cmp.Diff alone is slow
					t.Fatalf("step %d (-kept +read):\n%s", step, cmp.Diff(known, *h))
				}
				if rand.IntN(3) == 0 {
					continue
				}
				*h = randomHeld(*h, now)
				if known = *h; h.Expires <= now {
					delete(want, h.Key)
				} else {
					known.Changed, known.Expires, known.Found = false, 0, true
					want[h.Key] = known
				}
			}
		})
	}
	if got := s.Stats().Buckets; got != int64(len(want)) {
		t.Errorf("%d buckets, want %d", got, len(want))
	}
}

func heldKey(i int) (key [memstore.HeldKey]byte) {
	copy(key[:], fmt.Sprintf("%016x", i))
	return key
}

// randomHeld changes all but the key and the rule.
func randomHeld(h memstore.Held, now int64) memstore.Held {
	h.Limit = bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10, Window: 60_000_000}
	h.State = bucket.State{Last: now, Count: 1 + rand.Int64N(5)}
	h.State.Grants = []bucket.Grant{{At: now, Cost: h.State.Count}}
	h.Ahead, h.Extra = rand.Int64()-1<<62, nil
	for i := range h.Note {
		h.Note[i] = byte(rand.Int())
	}
	if rand.IntN(3) == 0 {
		h.Extra = rand.Int()
	}
	h.Changed, h.Expires = true, now+100_000_000
	if rand.IntN(4) == 0 {
		h.Expires = now
	}
	return h
}

// TestHeldIsEvictedByItsOwnClock fills a store with buckets whose clocks are an hour behind. The used ones stay.
func TestHeldIsEvictedByItsOwnClock(t *testing.T) {
	const hour, most = 3_600_000_000, 1000
	now := int64(10 * hour)
	s := open(t, memstore.Config{MaxBuckets: most, Clock: func() int64 { return now }})
	limit := bucket.Limit{Algorithm: bucket.LeakyBucket, Requests: 10, Burst: 10, Window: hour}
	put := func(i int, used int64) {
		h := []memstore.Held{{Key: heldKey(i)}}
		s.Edit(h, func(now int64) {
			h[0].Limit, h[0].Ahead, h[0].Changed, h[0].Expires = limit, -hour, true, now+hour
			h[0].State = bucket.State{Last: now - hour, Count: used * hour / 10, Rate: 10}
		})
	}
	const used = 100
	for i := range used {
		put(i, 10)
	}
	for i := range 5 * most {
		put(used+i, 1)
	}
	for i := range used {
		h := []memstore.Held{{Key: heldKey(i)}}
		s.Edit(h, func(int64) {})
		if !h[0].Found {
			t.Fatalf("bucket %d, which is used up, was evicted before buckets with 9 of 10 left", i)
		}
	}
}
