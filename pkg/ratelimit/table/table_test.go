package table_test

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// kept is what a table keeps of a bucket.
type kept struct {
	Slot  uint32
	Rule  uint64
	Limit bucket.Limit
	State bucket.State
	Note  [3]int64
	Extra string
}

// TestTableIsAMap makes the same random changes to a table and to a map, while a sweep looks for expired buckets.
func TestTableIsAMap(t *testing.T) {
	const second, start = 1_000_000, 1_000_000_000
	all, err := table.New[[3]int64, string](0)
	if err != nil {
		t.Fatal(err)
	}
	go all.Sweep(t.Context(), time.Millisecond, func() int64 { return start })
	want := map[table.Digest]kept{}
	for step := range 10_000 {
		d := digest(rand.IntN(1500))
		sh := all.Shard(&d)
		sh.Lock()
		known, there := want[d]
		slot := sh.Has(&d, known.Slot)
		if slot != table.NoSlot != there {
			t.Fatalf("step %d: slot %d, want one: %t", step, slot, there)
		}
		if there {
			got := kept{slot, sh.Rule(slot), *sh.Limit(slot), bucket.State{}, *sh.Note(slot), sh.Extra(slot)}
			sh.State(slot, &got.State, new([]bucket.Grant))
			if diff := cmp.Diff(known, got); diff != "" {
				t.Fatalf("step %d (-kept +read):\n%s", step, diff)
			}
		}
		switch {
		case rand.IntN(3) > 0:
			known = random(known, there)
			if known.Slot = slot; !there {
				known.Slot = sh.Add(&d, known.Rule, table.Clock{})
			}
			sh.Set(known.Slot, &known.Limit, &known.State, table.ExpiryAt(start+second))
			if *sh.Note(known.Slot) = known.Note; known.Extra != "" {
				sh.SetExtra(known.Slot, known.Extra)
			} else {
				sh.DropExtra(known.Slot)
			}
			want[d] = known
		case there:
			sh.Remove(slot)
			delete(want, d)
		}
		sh.Unlock()
	}
	if got := all.Stats().Buckets; got != int64(len(want)) {
		t.Errorf("%d buckets, want %d", got, len(want))
	}
}

// digest returns a digest that is spread as a hash.
func digest(i int) table.Digest {
	hash := sha256.Sum256([]byte{byte(i), byte(i >> 8), byte(i >> 16)})
	return table.Digest(hash[:])
}

// random returns another bucket. One that is there keeps its rule.
func random(k kept, there bool) kept {
	if !there {
		k.Rule = uint64(rand.IntN(5))
	}
	k.Limit = bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10 + rand.Int64N(3), Window: 60_000_000}
	k.State = bucket.State{Last: rand.Int64(), Count: 1 + rand.Int64N(5)}
	k.State.Grants = []bucket.Grant{{At: k.State.Last, Cost: k.State.Count}}
	k.Note = [3]int64{rand.Int64(), rand.Int64(), rand.Int64()}
	k.Extra = []string{"", "", "one", "another"}[rand.IntN(4)]
	return k
}

// TestBucketsAreEvictedByTheirOwnClock fills a table with buckets whose clocks are an hour behind. The used ones stay.
func TestBucketsAreEvictedByTheirOwnClock(t *testing.T) {
	const hour, most = 3_600_000_000, 1000
	clock := table.Clock{Now: 10 * hour, Ahead: -hour}
	all, err := table.New[struct{}, string](most)
	if err != nil {
		t.Fatal(err)
	}
	limit := bucket.Limit{Algorithm: bucket.LeakyBucket, Requests: 10, Burst: 10, Window: hour}
	put := func(i int, used int64) {
		d := digest(i)
		s := bucket.State{Last: clock.Now + clock.Ahead, Count: used * hour / 10, Rate: 10}
		sh := all.Shard(&d)
		sh.Set(sh.Add(&d, 0, clock), &limit, &s, table.ExpiryAt(clock.Now+hour))
	}
	const used = 100
	for i := range used {
		put(i, 10)
	}
	for i := range 5 * most {
		put(used+i, 1)
	}
	for i := range used {
		if d := digest(i); all.Shard(&d).Find(&d) == table.NoSlot {
			t.Fatalf("bucket %d, which is used up, was evicted before buckets with 9 of 10 left", i)
		}
	}
}
