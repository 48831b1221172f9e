package memstore_test

import (
	"crypto/sha256"
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
	handles := map[[memstore.HeldKey]byte]memstore.Handle{} // of earlier calls; some are stale
	for step := range 10_000 {
		clock.Add(rand.Int64N(3))
		held := make([]memstore.Held, 1+rand.IntN(3))
		for i := range held {
			held[i].Key, held[i].Rule = heldKey(3*rand.IntN(500)+i), uint64(rand.IntN(5))
		}
		for i := range held {
			if found, ok := handles[held[i].Key]; ok && rand.IntN(2) == 0 {
				held[i].Handle = found
			}
		}
		now := clock.Load()
		s.Edit(held, func() {
			for i := range held {
				h := &held[i]
				known, found := want[h.Key]
				handles[h.Key] = h.Handle
				if known.Handle = h.Handle; found != h.Found {
					t.Fatalf("step %d: found %t, want %t", step, h.Found, found)
				}
				if !reflect.DeepEqual(known, *h) { // cmp.Diff alone is slow
					t.Fatalf("step %d (-kept +read):\n%s", step, cmp.Diff(known, *h))
				}
				if rand.IntN(3) == 0 {
					continue
				}
				*h = randomHeld(*h, now)
				if known = *h; h.Expires == 0 {
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

// heldKey returns a key that is spread as a hash.
func heldKey(i int) (key [memstore.HeldKey]byte) {
	hash := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	return [memstore.HeldKey]byte(hash[:])
}

// randomHeld changes all but the key and the rule.
func randomHeld(h memstore.Held, now int64) memstore.Held {
	h.Limit = bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10, Window: 60_000_000}
	h.State = bucket.State{Last: now, Count: 1 + rand.Int64N(5)}
	h.State.Grants = []bucket.Grant{{At: now, Cost: h.State.Count}}
	h.Ahead, h.Extra = rand.Int64()-1<<62, nil
	h.Note = memstore.Note{
		Clock: rand.Int64(), Heard: rand.Int64(), Epoch: rand.Uint64(),
		Trip: int64(rand.Uint32()), Unanswered: int64(rand.Uint32()),
		Confirmed: rand.IntN(2) == 0, Cut: rand.IntN(2) == 0, Suspect: rand.IntN(2) == 0, Proved: rand.IntN(2) == 0,
	}
	if rand.IntN(3) == 0 {
		h.Extra = rand.Int()
	}
	h.Changed, h.Expires = true, now+100_000_000
	if rand.IntN(4) == 0 {
		h.Expires = 0
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
		h := []memstore.Held{{Handle: memstore.Handle{Key: heldKey(i)}}}
		s.Edit(h, func() {
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
		h := []memstore.Held{{Handle: memstore.Handle{Key: heldKey(i)}}}
		s.Edit(h, func() {})
		if !h[0].Found {
			t.Fatalf("bucket %d, which is used up, was evicted before buckets with 9 of 10 left", i)
		}
	}
}
