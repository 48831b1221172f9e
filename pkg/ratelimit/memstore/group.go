package memstore

import (
	"container/heap"
	"math"
)

// group holds the buckets of one rule in a table.
type group struct {
	rule uint64
	// slots are the slots of the buckets, in no order. entry.place is the index of a bucket's slot.
	slots []uint32
	// at is the group's index in groups.heap.
	at int
}

// groups are the buckets of a table by rule.
type groups struct {
	numbers map[uint64]uint16 // the indexes in list of the groups of rules
	list    []group
	free    []uint16 // numbers of groups without buckets
	// heap has the numbers of all groups, each before the smaller ones at 2n+1 and 2n+2. A full shard needs the largest
	// group for each new key, and there may be thousands.
	heap []uint16
}

// number returns the number of a rule's group, which it makes if needed. Rules beyond 65,536 share a group.
func (g *groups) number(rule uint64) uint16 {
	if n, ok := g.numbers[rule]; ok {
		return n
	}
	var n uint16
	switch last := len(g.free) - 1; {
	case last >= 0:
		n, g.free = g.free[last], g.free[:last]
	case len(g.list) <= math.MaxUint16:
		n = uint16(len(g.list))
		g.list = append(g.list, group{at: len(g.heap)})
		g.heap = append(g.heap, n)
	default:
		return math.MaxUint16
	}
	if g.numbers == nil {
		g.numbers = make(map[uint64]uint16)
	}
	g.list[n].rule, g.numbers[rule] = rule, n
	return n
}

// rule returns the rule of a bucket.
func (g *groups) rule(e *entry) uint64 { return g.list[e.group].rule }

// largest returns the slots of the group with the most buckets. The rule of the new bucket counts one more than it
// has. So if that rule has as many buckets as any other, its new bucket replaces one of its own.
func (g *groups) largest(rule uint64) []uint32 {
	if len(g.heap) == 0 {
		return nil
	}
	most := g.list[g.heap[0]].slots
	if n, ok := g.numbers[rule]; ok && len(g.list[n].slots)+1 >= len(most) {
		return g.list[n].slots
	}
	return most
}

// Len implements heap.Interface. The heap has the largest group first.
func (g *groups) Len() int { return len(g.heap) }

// Less reports whether the group at index a of the heap has more buckets than the group at b.
func (g *groups) Less(a, b int) bool {
	return len(g.list[g.heap[a]].slots) > len(g.list[g.heap[b]].slots)
}

// Swap swaps two groups of the heap.
func (g *groups) Swap(a, b int) {
	g.heap[a], g.heap[b] = g.heap[b], g.heap[a]
	g.list[g.heap[a]].at, g.list[g.heap[b]].at = a, b
}

// Push is never called: a new group has no buckets, so it is appended, and groups stay.
func (g *groups) Push(any) {}

// Pop is never called, as Push.
func (g *groups) Pop() any { return nil }

// join adds a bucket in a slot to the group of its rule.
func (t *table) join(slot uint32, rule uint64) {
	n := t.groups.number(rule)
	g := &t.groups.list[n]
	e := t.at(slot)
	e.group, e.place = n, uint32(len(g.slots))
	g.slots = append(g.slots, slot)
	heap.Fix(&t.groups, g.at)
}

// leave removes a bucket from its group. If the group has become small, it also frees memory.
func (t *table) leave(e *entry) {
	g := &t.groups.list[e.group]
	last := len(g.slots) - 1
	moved := g.slots[last]
	g.slots[e.place] = moved
	t.at(moved).place = e.place
	g.slots = g.slots[:last]
	heap.Fix(&t.groups, g.at)
	switch {
	case last == 0:
		delete(t.groups.numbers, g.rule)
		g.rule, g.slots = 0, nil
		t.groups.free = append(t.groups.free, e.group)
	case cap(g.slots) >= chunkLen && last < cap(g.slots)/4:
		g.slots = append(make([]uint32, 0, 2*last), g.slots...)
	}
}
