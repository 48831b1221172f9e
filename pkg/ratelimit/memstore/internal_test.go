package memstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
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
		var e entry
		var got bucket.State
		var table table
		table.setLimit(&e, &limit)
		table.setState(&e, &state)
		table.state(&e, &got, new([]bucket.Grant))
		if diff := cmp.Diff(limit, *table.limits.at(e.limit)); diff != "" {
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
		kept := seconds(test.expireAt)
		if kept == 0 {
			t.Errorf("a bucket that expires at %d µs: 0, which means a free slot", test.expireAt)
		}
		if test.expireAt < 1<<60 && (expired(kept, test.expireAt) || !expired(kept, max(test.expireAt, 0)+2*second)) {
			t.Errorf("a bucket that expires at %d µs is kept until %d s: want it kept until then, and dropped within 2 s",
				test.expireAt, kept)
		}
	}
}

// TestTableIsAMap makes the same random changes to a table and to a map.
func TestTableIsAMap(t *testing.T) {
	seeds := newSeeds()
	table := table{keys: new(chunks[string])}
	want := map[string]int64{}
	const keys = 3000
	for step := range int64(200_000) {
		key := fmt.Sprint("key ", rand.IntN(keys))
		d := seeds.digest(key)
		slot := table.find(&d)
		if _, there := want[key]; slot != noSlot != there {
			t.Fatalf("step %d: %q in slot %d, want a slot: %t", step, key, slot, there)
		}
		switch {
		case slot == noSlot:
			slot = table.insert(&d, key, uint64(rand.IntN(5)))
			e := table.at(slot)
			e.count = step
			table.setLimit(e, &bucket.Limit{Requests: int64(rand.IntN(10))})
			want[key] = step
		case table.at(slot).count != want[key] || *table.keys.at(slot) != key:
			t.Fatalf("step %d: %q is %d, want %d", step, key, table.at(slot).count, want[key])
		case rand.IntN(3) == 0:
			table.remove(slot)
			delete(want, key)
		default:
			table.setLimit(table.at(slot), &bucket.Limit{Requests: int64(rand.IntN(10))})
		}
		if table.live() != len(want) {
			t.Fatalf("step %d: %d entries, want %d", step, table.live(), len(want))
		}
		if step%1000 == 0 {
			checkGroups(t, &table)
		}
	}
	if table.slots > keys {
		t.Errorf("%d slots for %d keys: what was freed is not used again", table.slots, keys)
	}
	uses := map[bucket.Limit]uint32{}
	for slot := range table.slots {
		if e := table.at(slot); e.limit != 0 {
			uses[*table.limits.at(e.limit)]++
		}
	}
	got := map[bucket.Limit]uint32{}
	for limit, number := range table.limits.numbers {
		got[limit] = table.limits.pool.at(number).buckets
	}
	if diff := cmp.Diff(uses, got); diff != "" || table.limits.pool.used > 11 {
		t.Errorf("%d limits, buckets of each (-want +got):\n%s", table.limits.pool.used, diff)
	}
}

// checkGroups checks that each bucket is in one group, that of its rule, and has its place there.
func checkGroups(t *testing.T, table *table) {
	t.Helper()
	buckets := 0
	for n := range table.groups.heap {
		g := table.groups.of(uint16(n))
		for place := range g.length {
			slot := *g.slot(place)
			e := table.at(slot)
			if int(e.group) != n || e.place != place || e.digest == (digest{}) {
				t.Fatalf("slot %d at place %d of group %d: it is at place %d of group %d",
					slot, place, n, e.place, e.group)
			}
		}
		if room := roomOf(g); room > max(4*int(g.length), int(g.length)+2*partLen) || g.length == 0 && room > 0 {
			t.Errorf("group %d has room for %d buckets and has %d", n, room, g.length)
		}
		buckets += int(g.length)
		if table.groups.heap[g.at] != uint16(n) {
			t.Fatalf("group %d is not at its place %d of the heap", n, g.at)
		}
		if at := int(g.at); at > 0 && table.groups.Less(at, (at-1)/2) {
			t.Fatalf("a group is above one of %d buckets that has more", g.length)
		}
	}
	if buckets != table.live() || len(table.groups.numbers)+len(table.groups.free) > len(table.groups.heap) {
		t.Fatalf("%d buckets in groups, want %d; %d rules and %d free of %d groups",
			buckets, table.live(), len(table.groups.numbers), len(table.groups.free), len(table.groups.heap))
	}
}

// roomOf returns for how many slots a group has memory.
func roomOf(g *group) (room int) {
	for _, part := range g.parts {
		room += cap(part)
	}
	return room
}

// TestManyRules has more rules than groups: the rules beyond share one group.
func TestManyRules(t *testing.T) {
	seeds := newSeeds()
	var table table
	const rules = math.MaxUint16 + 1000
	for pass := range 2 {
		for rule := range uint64(rules) {
			d := seeds.digest(fmt.Sprint(rule))
			table.insert(&d, "", rule)
		}
		checkGroups(t, &table)
		if got := len(table.groups.heap); got != math.MaxUint16+1 {
			t.Fatalf("pass %d: %d groups of %d rules", pass, got, rules)
		}
		if got := table.groups.largest(rules).length; got != 1000 {
			t.Errorf("pass %d: the largest group has %d buckets, want the 1000 of rules beyond the others",
				pass, got)
		}
		for slot := range table.slots {
			table.remove(slot)
		}
		checkGroups(t, &table)
		if got := len(table.groups.numbers); got != 0 {
			t.Errorf("pass %d: %d rules are remembered that have no buckets", pass, got)
		}
	}
}

// TestGroupsGiveMemoryBack checks that groups need no more memory than their buckets after floods of one rule after
// the other.
func TestGroupsGiveMemoryBack(t *testing.T) {
	seeds := newSeeds()
	var table table
	const buckets, kept = 10_000, 100
	for rule := range uint64(20) {
		for i := range buckets {
			d := seeds.digest(fmt.Sprint(rule, " ", i))
			table.insert(&d, "", rule)
		}
		for i := range buckets - kept {
			d := seeds.digest(fmt.Sprint(rule, " ", i))
			table.remove(table.find(&d))
		}
	}
	checkGroups(t, &table)
	places := 0
	for n := range table.groups.heap {
		places += roomOf(table.groups.of(uint16(n)))
	}
	if places > 8*table.live() {
		t.Errorf("room for %d places of %d buckets", places, table.live())
	}
}

// TestNoDamageGoesUnnoticed cuts a snapshot at every length, and flips each bit of every byte.
func TestNoDamageGoesUnnoticed(t *testing.T) {
	sound := snapshotOf(t, bucket.Algorithms...)
	for i := range sound {
		if err := read(t, sound[:i]); !isUnsound(err) {
			t.Errorf("cut off after %d bytes of %d: %v, want it to be refused", i, len(sound), err)
		}
		for bit := range 8 {
			damaged := bytes.Clone(sound)
			damaged[i] ^= 1 << bit
			if err := read(t, damaged); !isUnsound(err) {
				t.Errorf("bit %d of byte %d of %d flipped: %v, want it to be refused", bit, i, len(sound), err)
			}
		}
	}
	if err := read(t, sound); err != nil {
		t.Errorf("undamaged: %v", err)
	}
}

// TestReadErrorIsNoDamage checks that a failing disk does not discard a good snapshot.
func TestReadErrorIsNoDamage(t *testing.T) {
	sound := snapshotOf(t, bucket.Algorithms...)
	for i := range sound {
		broken := errors.New("input/output error")
		err := emptyStore(t).readSnapshot(failingReader{sound[:i], broken}, int64(len(sound)))
		if !errors.Is(err, broken) || isUnsound(err) {
			t.Errorf("a read error after %d bytes: %v, want that error", i, err)
		}
	}
}

// failingReader is a file of which only the beginning is readable.
type failingReader struct {
	readable []byte
	err      error
}

func (r failingReader) ReadAt(b []byte, offset int64) (int, error) {
	n := copy(b, r.readable[min(offset, int64(len(r.readable))):])
	if n < len(b) {
		return n, r.err
	}
	return n, nil
}

// FuzzBuckets reads any bytes as buckets with a correct checksum. They are refused or loaded; loaded buckets can be
// decided on and saved again.
func FuzzBuckets(f *testing.F) {
	for _, algorithm := range bucket.Algorithms {
		s := emptyStore(f)
		use(s, algorithm)
		for i := range s.shards {
			if content, _, _ := s.shards[i].appendFrom(nil, 0); len(content) > 0 {
				f.Add(content)
			}
		}
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		content = append([]byte(snapshotTitle), content...)
		content = binary.BigEndian.AppendUint32(content, crc32.Checksum(content, castagnoli))
		s := emptyStore(t)
		s.clock = func() int64 { return 1_000_000 }
		if err := s.readSnapshot(bytes.NewReader(content), int64(len(content))); err != nil && !isUnsound(err) {
			t.Fatalf("%v, want it to be loaded or refused", err)
		}
		var again bytes.Buffer
		if err := s.writeSnapshot(&again); err != nil {
			t.Fatal(err)
		}
		if err := read(t, again.Bytes()); err != nil {
			t.Fatalf("what was loaded and saved is refused: %v", err)
		}
		for i := range s.shards {
			table := &s.shards[i].table
			for slot := range table.slots {
				if e := table.at(slot); e.expires != 0 {
					takeOne(s, bucket.Take{
						Key: *table.keys.at(slot), Limit: *table.limits.at(e.limit), Cost: 1, Refund: 1, CountDenied: true,
					})
				}
			}
		}
	})
}

// emptyStore returns a store that could save a snapshot.
func emptyStore(t testing.TB) *Store {
	t.Helper()
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.shards {
		s.shards[i].table.keys = new(chunks[string])
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func use(s *Store, algorithms ...bucket.Algorithm) {
	for _, algorithm := range algorithms {
		limit := bucket.Limit{Algorithm: algorithm, Requests: 7, Burst: 9, Window: 3_600_000_000}
		for range 2 {
			takeOne(s, bucket.Take{Key: algorithm.String(), Limit: limit, Cost: 2})
		}
	}
}

func takeOne(s *Store, t bucket.Take) {
	s.Take(context.Background(), []bucket.Request{{Takes: []bucket.Take{t}}}, make([]bucket.Outcome, 1))
}

func snapshotOf(t testing.TB, algorithms ...bucket.Algorithm) []byte {
	t.Helper()
	s := emptyStore(t)
	use(s, algorithms...)
	var b bytes.Buffer
	if err := s.writeSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read(t testing.TB, snapshot []byte) error {
	t.Helper()
	s := emptyStore(t)
	return s.readSnapshot(bytes.NewReader(snapshot), int64(len(snapshot)))
}

func isUnsound(err error) bool { return errors.Is(err, errUnsound) }
