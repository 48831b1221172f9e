package table

import (
	"container/heap"
	"math"
)

// group holds the buckets of one rule in a shard.
type group struct {
	rule uint64
	// slots are those of the buckets, in no order. entry.place is the index of a bucket's slot.
	slots []uint32
	// holding is how many of the buckets have live holds. They are the first ones, so that the others are evicted.
	holding uint32
	// at is the group's index in groups.heap.
	at uint32
}

// pop removes the slot at the end. It keeps some memory for the next ones.
func (g *group) pop() (slot uint32) {
	last := len(g.slots) - 1
	slot, g.slots = g.slots[last], g.slots[:last]
	switch room := cap(g.slots); {
	case last == 0:
		g.slots = nil
	case last < room/4:
		g.slots = append(make([]uint32, 0, room/2), g.slots...)
	}
	return slot
}

// groups are the buckets of a shard by rule.
type groups struct {
	numbers map[uint64]uint16 // the indexes in list of the groups of rules
	list    chunks[group]
	free    []uint16 // numbers of groups without buckets
	// heap has the numbers of all groups, each before the smaller ones at 2n+1 and 2n+2. A full shard needs the largest
	// group for each new key, and there may be thousands.
	heap []uint16
}

func (g *groups) of(number uint16) *group { return g.list.at(uint32(number)) }

// number returns the number of a rule's group, which it makes if needed. Rules beyond 65,536 share a group.
func (g *groups) number(rule uint64) uint16 {
	if n, ok := g.numbers[rule]; ok {
		return n
	}
	var n uint16
	switch last := len(g.free) - 1; {
	case last >= 0:
		n, g.free = g.free[last], g.free[:last]
	case len(g.heap) <= math.MaxUint16:
		n = uint16(len(g.heap))
		g.list.reach(uint32(n))
		g.of(n).at = uint32(n)
		g.heap = append(g.heap, n)
	default:
		return math.MaxUint16
	}
	if g.numbers == nil {
		g.numbers = make(map[uint64]uint16)
	}
	g.of(n).rule, g.numbers[rule] = rule, n
	return n
}

// largest returns the group with the most buckets. The rule of the new bucket counts one more than it has. So if that
// rule has as many buckets as any other, its new bucket replaces one of its own.
func (g *groups) largest(rule uint64) *group {
	most := g.of(g.heap[0])
	if n, ok := g.numbers[rule]; ok && len(g.of(n).slots)+1 >= len(most.slots) {
		return g.of(n)
	}
	return most
}

// Len implements heap.Interface. The heap has the largest group first.
func (g *groups) Len() int { return len(g.heap) }

// Less reports whether the group at index a of the heap has more buckets than the group at b.
func (g *groups) Less(a, b int) bool {
	return len(g.of(g.heap[a]).slots) > len(g.of(g.heap[b]).slots)
}

// Swap swaps two groups of the heap.
func (g *groups) Swap(a, b int) {
	g.heap[a], g.heap[b] = g.heap[b], g.heap[a]
	g.of(g.heap[a]).at, g.of(g.heap[b]).at = uint32(a), uint32(b)
}

// Push is never called: a new group has no buckets, so it is appended, and groups stay.
func (g *groups) Push(any) {}

// Pop is never called, as Push.
func (g *groups) Pop() any { return nil }

// join adds a bucket in a slot to the group of its rule.
func (sh *Shard[N, E]) join(slot uint32, rule uint64) {
	n := sh.groups.number(rule)
	g := sh.groups.of(n)
	e := sh.at(slot)
	e.group, e.place = n, uint32(len(g.slots))
	g.slots = append(g.slots, slot)
	heap.Fix(&sh.groups, int(g.at))
}

// SetHolds sets the number of live holds of the bucket in a slot. A bucket with any is evicted after those without.
func (sh *Shard[N, E]) SetHolds(slot uint32, number int64) {
	e, n := sh.at(slot), uint16(min(number, mostHolds))
	if e.holds == n {
		return
	}
	sh.holds.Add(int64(n) - int64(e.holds))
	g := sh.groups.of(e.group)
	switch {
	case e.holds == 0:
		sh.swap(g, e.place, g.holding)
		g.holding++
	case n == 0:
		g.holding--
		sh.swap(g, e.place, g.holding)
	}
	e.holds = n
}

// Holds returns the number of live holds of the bucket in a slot.
func (sh *Shard[N, E]) Holds(slot uint32) uint16 { return sh.at(slot).holds }

func (sh *Shard[N, E]) swap(g *group, a, b uint32) {
	p, q := &g.slots[a], &g.slots[b]
	*p, *q = *q, *p
	sh.at(*p).place, sh.at(*q).place = a, b
}

// leave removes a bucket from its group.
func (sh *Shard[N, E]) leave(e *entry) {
	g := sh.groups.of(e.group)
	if last := g.pop(); int(e.place) != len(g.slots) {
		g.slots[e.place] = last
		sh.at(last).place = e.place
	}
	heap.Fix(&sh.groups, int(g.at))
	if len(g.slots) == 0 {
		delete(sh.groups.numbers, g.rule)
		g.rule = 0
		sh.groups.free = append(sh.groups.free, e.group)
	}
}
