package memstore

import "math"

// group is the buckets of one rule in a table.
type group struct {
	rule uint64
	// slots are those of the buckets, in no order. entry.place is where that of a bucket is.
	slots []uint32
}

// groups are the buckets of a table by rule.
type groups struct {
	numbers map[uint64]uint16 // of a rule's group in list
	list    []group
	free    []uint16 // numbers of groups without buckets
}

// number returns the number of a rule's group, a new one if the rule has none. Rules beyond 65,536 share a group.
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
		g.list = append(g.list, group{})
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

// largest returns the slots of the group with the most buckets, where the rule counts one more than it has. So the new bucket of a
// rule that has as many as any other takes the place of one of its own.
func (g *groups) largest(rule uint64) []uint32 {
	var slots []uint32
	if n, ok := g.numbers[rule]; ok {
		slots = g.list[n].slots
	}
	most := len(slots) + 1
	for i := range g.list {
		if len(g.list[i].slots) > most || len(slots) == 0 {
			slots = g.list[i].slots
			most = len(slots)
		}
	}
	return slots
}

// join adds a bucket in a slot to the group of its rule.
func (t *table) join(slot uint32, rule uint64) {
	n := t.groups.number(rule)
	g := &t.groups.list[n]
	e := t.at(slot)
	e.group, e.place = n, uint32(len(g.slots))
	g.slots = append(g.slots, slot)
}

// leave takes a bucket out of its group, and the group's memory back when the group has become small.
func (t *table) leave(e *entry) {
	g := &t.groups.list[e.group]
	last := len(g.slots) - 1
	moved := g.slots[last]
	g.slots[e.place] = moved
	t.at(moved).place = e.place
	g.slots = g.slots[:last]
	switch {
	case last == 0:
		delete(t.groups.numbers, g.rule)
		*g = group{}
		t.groups.free = append(t.groups.free, e.group)
	case cap(g.slots) >= chunkLen && last < cap(g.slots)/4:
		g.slots = append(make([]uint32, 0, 2*last), g.slots...)
	}
}
