package table

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

func TestEntryIsACacheLine(t *testing.T) {
	if got := unsafe.Sizeof(entry{}); got != 64 {
		t.Errorf("an entry has %d bytes, want 64", got)
	}
}

// TestEntryHoldsTheLargestCounts checks that the largest state of a valid limit is stored unchanged.
func TestEntryHoldsTheLargestCounts(t *testing.T) {
	const most = bucket.MaxRequests
	for _, limit := range []bucket.Limit{
		{Algorithm: bucket.FixedWindow, Requests: most, Window: bucket.MaxWindow},
		{Algorithm: bucket.LeakyBucket, Requests: most, Burst: most, Window: bucket.MaxWindow},
	} {
		if err := limit.Check(); err != nil {
			t.Fatal(err)
		}
		state := bucket.State{Last: -1 << 62, Count: 1 << 53, Part: 2 * most}
		if limit.Algorithm.HasBurst() {
			state.Rate = most
		}
		var got bucket.State
		var sh Shard[struct{}, string]
		sh.entries.reach(0)
		sh.Set(0, &limit, &state, 1)
		sh.State(0, &got, new([]bucket.Grant))
		if diff := cmp.Diff(limit, *sh.Limit(0)); diff != "" {
			t.Errorf("limit (-kept +read):\n%s", diff)
		}
		if diff := cmp.Diff(state, got); diff != "" {
			t.Errorf("state (-kept +read):\n%s", diff)
		}
	}
}

func TestExpiry(t *testing.T) {
	const second = 1_000_000
	for _, test := range []struct{ expireAt, now int64 }{
		{0, 0}, {1, 1}, {second - 1, second - 1}, {second, second}, {5*second + 1, 5*second + 1}, {-3 * second, 0},
		{1 << 61, 1 << 61},
	} {
		kept := ExpiryAt(test.expireAt)
		if kept == 0 {
			t.Errorf("a bucket that expires at %d µs: 0, which means a free slot", test.expireAt)
		}
		if test.expireAt < 1<<60 && (kept.Passed(test.expireAt) || !kept.Passed(max(test.expireAt, 0)+2*second)) {
			t.Errorf("a bucket that expires at %d µs is kept until %d s: want it kept until then, and dropped within 2 s",
				test.expireAt, kept)
		}
	}
}

// mustNew returns a table of one shard, which is never full.
func mustNew(t *testing.T) *Table[struct{}, string] {
	t.Helper()
	all, err := New[struct{}, string](1)
	if err != nil {
		t.Fatal(err)
	}
	all.shards[0].capacity = math.MaxInt
	return all
}

// TestShardIsAMap makes the same random changes to a shard and to a map.
func TestShardIsAMap(t *testing.T) {
	all := mustNew(t)
	sh := &all.shards[0]
	want := map[string]int64{}
	const keys = 3000
	for step := range int64(200_000) {
		key := fmt.Sprint("key ", rand.IntN(keys))
		d := all.Digest(key)
		slot := sh.Find(&d)
		if _, there := want[key]; slot != NoSlot != there {
			t.Fatalf("step %d: %q in slot %d, want a slot: %t", step, key, slot, there)
		}
		switch {
		case slot == NoSlot:
			slot = sh.Add(&d, uint64(rand.IntN(5)), Clock{})
			sh.Set(slot, &bucket.Limit{Requests: int64(rand.IntN(10))}, &bucket.State{Count: step}, 1)
			sh.SetExtra(slot, key)
			want[key] = step
		case sh.at(slot).count != want[key] || sh.Extra(slot) != key:
			t.Fatalf("step %d: %q is %d, want %d", step, key, sh.at(slot).count, want[key])
		case rand.IntN(3) == 0:
			sh.Remove(slot)
			delete(want, key)
		default:
			sh.Set(slot, &bucket.Limit{Requests: int64(rand.IntN(10))}, &bucket.State{Count: want[key]}, 1)
		}
		if int(sh.used.Load()) != len(want) {
			t.Fatalf("step %d: %d entries, want %d", step, int(sh.used.Load()), len(want))
		}
		if step%1000 == 0 {
			checkGroups(t, sh)
		}
	}
	if sh.slots > keys {
		t.Errorf("%d slots for %d keys: what was freed is not used again", sh.slots, keys)
	}
	uses := map[bucket.Limit]uint32{}
	for slot := range sh.slots {
		if e := sh.at(slot); e.limit != 0 {
			uses[*sh.limits.at(e.limit)]++
		}
	}
	got := map[bucket.Limit]uint32{}
	for limit, number := range sh.limits.numbers {
		got[limit] = sh.limits.pool.at(number).buckets
	}
	if diff := cmp.Diff(uses, got); diff != "" || sh.limits.pool.used > 11 {
		t.Errorf("%d limits, buckets of each (-want +got):\n%s", sh.limits.pool.used, diff)
	}
}

// checkGroups checks that each bucket is in one group, that of its rule, and has its place there.
func checkGroups(t *testing.T, sh *Shard[struct{}, string]) {
	t.Helper()
	buckets := 0
	for n := range sh.groups.heap {
		g := sh.groups.of(uint16(n))
		for place, slot := range g.slots {
			e := sh.at(slot)
			if int(e.group) != n || int(e.place) != place || e.digest == (Digest{}) {
				t.Fatalf("slot %d at place %d of group %d: it is at place %d of group %d",
					slot, place, n, e.place, e.group)
			}
		}
		if room := cap(g.slots); room > 4*len(g.slots) {
			t.Errorf("group %d has room for %d buckets and has %d", n, room, len(g.slots))
		}
		buckets += len(g.slots)
		if sh.groups.heap[g.at] != uint16(n) {
			t.Fatalf("group %d is not at its place %d of the heap", n, g.at)
		}
		if at := int(g.at); at > 0 && sh.groups.Less(at, (at-1)/2) {
			t.Fatalf("a group is above one of %d buckets that has more", len(g.slots))
		}
	}
	if buckets != int(sh.used.Load()) || len(sh.groups.numbers)+len(sh.groups.free) > len(sh.groups.heap) {
		t.Fatalf("%d buckets in groups, want %d; %d rules and %d free of %d groups",
			buckets, int(sh.used.Load()), len(sh.groups.numbers), len(sh.groups.free), len(sh.groups.heap))
	}
}

// TestManyRules has more rules than groups: the rules beyond share one group.
func TestManyRules(t *testing.T) {
	all := mustNew(t)
	sh := &all.shards[0]
	const rules = math.MaxUint16 + 1000
	for pass := range 2 {
		for rule := range uint64(rules) {
			d := all.Digest(fmt.Sprint(rule))
			sh.Add(&d, rule, Clock{})
		}
		checkGroups(t, sh)
		if got := len(sh.groups.heap); got != math.MaxUint16+1 {
			t.Fatalf("pass %d: %d groups of %d rules", pass, got, rules)
		}
		if got := len(sh.groups.largest(rules).slots); got != 1000 {
			t.Errorf("pass %d: the largest group has %d buckets, want the 1000 of rules beyond the others",
				pass, got)
		}
		for slot := range sh.slots {
			sh.Remove(slot)
		}
		checkGroups(t, sh)
		if got := len(sh.groups.numbers); got != 0 {
			t.Errorf("pass %d: %d rules are remembered that have no buckets", pass, got)
		}
	}
}

// TestGroupsGiveMemoryBack checks that groups need no more memory than their buckets after floods of one rule after
// the other.
func TestGroupsGiveMemoryBack(t *testing.T) {
	all := mustNew(t)
	sh := &all.shards[0]
	const buckets, kept = 10_000, 100
	for rule := range uint64(20) {
		for i := range buckets {
			d := all.Digest(fmt.Sprint(rule, " ", i))
			sh.Add(&d, rule, Clock{})
		}
		for i := range buckets - kept {
			d := all.Digest(fmt.Sprint(rule, " ", i))
			sh.Remove(sh.Find(&d))
		}
	}
	checkGroups(t, sh)
	places := 0
	for n := range sh.groups.heap {
		places += cap(sh.groups.of(uint16(n)).slots)
	}
	if places > 8*int(sh.used.Load()) {
		t.Errorf("room for %d places of %d buckets", places, int(sh.used.Load()))
	}
}
