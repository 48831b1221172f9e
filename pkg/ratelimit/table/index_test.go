package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestIndexIsAMap makes the same random changes to an index and to a map, while it grows and when it is nearly empty
// again. A change adds at most one segment, so no take waits longer. No segment becomes much fuller than the others,
// and each probe finds its place.
func TestIndexIsAMap(t *testing.T) {
	var x index
	want := map[uint64]int{} // places, and where each is in list
	var list []uint64
	add := func(slot uint32) {
		place, before := newPlace(rand.Uint64(), slot), len(x.segments)
		x.add(place, len(list))
		if after := len(x.segments); after > before+1 {
			t.Fatalf("%d segments after %d", after, before)
		}
		want[place] = len(list)
		list = append(list, place)
	}
	remove := func(place uint64) {
		x.segment(hashOf(place)).remove(place)
		last := list[len(list)-1]
		want[last] = want[place]
		list[want[place]] = last
		list = list[:len(list)-1]
		delete(want, place)
	}
	const most = 50_000
	for slot := range uint32(6 * most) {
		growing := slot < 2*most || slot > 4*most
		switch {
		case len(list) == 0, growing && len(list) < most, !growing && rand.IntN(3) == 0:
			add(slot)
		default:
			remove(list[rand.IntN(len(list))])
		}
		if slot%5000 == 0 {
			checkIndex(t, &x, want)
		}
	}
	for len(list) > 0 {
		remove(list[0])
	}
	checkIndex(t, &x, want)
}

// checkIndex checks that an index has all wanted places and no others, each where a probe finds it.
func checkIndex(t *testing.T, x *index, want map[uint64]int) {
	t.Helper()
	places := 0
	for n, s := range x.segments {
		used := 0
		for i, place := range s {
			if place == 0 {
				continue
			}
			used++
			if _, ok := want[place]; !ok {
				t.Fatalf("segment %d has %x, which was removed", n, place)
			}
			if x.segment(hashOf(place)) != s {
				t.Fatalf("segment %d of %d has %x, which belongs to another", n, len(x.segments), place)
			}
			for probe := hashOf(place) % segmentLen; probe != uint32(i); probe = (probe + 1) % segmentLen {
				if s[probe] == 0 {
					t.Fatalf("segment %d has %x at %d, but %d, before it, is free", n, place, i, probe)
				}
			}
		}
		if most := segmentLen * 7 / 8; used > most {
			t.Errorf("segment %d of %d has %d places, want at most %d", n, len(x.segments), used, most)
		}
		places += used
	}
	if places != len(want) {
		t.Fatalf("%d places, want %d", places, len(want))
	}
}

// TestProbesAreShort inserts keys that differ little, as a client may choose them. The longest probe must stay within a
// part of a segment.
func TestProbesAreShort(t *testing.T) {
	all, x := mustNew(t), index{}
	const keys = 200_000
	longest, sum := 0, 0
	for slot := range uint32(keys) {
		d := all.Digest(fmt.Sprintf("%d", slot))
		x.add(newPlace(d.hash(), slot), int(slot))
	}
	for _, s := range x.segments {
		for i, place := range s {
			if place != 0 {
				length := 1 + int((uint32(i)-hashOf(place))%segmentLen)
				longest, sum = max(longest, length), sum+length
			}
		}
	}
	t.Logf("probes have up to %d places, %.2f on average", longest, float64(sum)/keys)
	if longest > segmentLen/4 || sum > 3*keys {
		t.Errorf("a probe has %d places, all have %d, want at most %d and %d", longest, sum, segmentLen/4, 3*keys)
	}
}
