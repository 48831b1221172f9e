package bucket

import (
	"hash/maphash"
	"slices"
)

// Holds are the live holds of a bucket. The nil pointer and the zero value have none. A hold takes at most 64 bytes,
// with its place in the index.
type Holds struct {
	// list has the holds, the first to expire first. A hold that was removed stays until the next rebuild, with gone as
	// its Expires.
	list []HoldCost
	live int
	// first is the place of the first hold that may be live.
	first int
	// units is the sum of the costs of the live ones.
	units int64
	// index is a hash table of the last place of each id in the list, plus 1; 0 for none. next has the next place of the
	// same id for each place, and for the last one the first. Both are empty while the list is short.
	index, next []uint16
	// seed is that of the hash: a client may know how its ids are made.
	seed maphash.Seed
	// Others are holds of which only this is known.
	Others SomeHolds
}

// SomeHolds is a sum of holds whose ids are not known: a shared store shows only it.
type SomeHolds struct {
	Units, Number int64
	// Until is the latest time at which one of them expires.
	Until int64
}

const (
	gone = -1
	// shortList is how many holds are searched without an index.
	shortList = 16
	// longestIndexed is the longest list whose places an index can have.
	longestIndexed = 1<<16 - 2
)

// Units returns the sum of the costs of all live holds.
func (h *Holds) Units() int64 {
	if h == nil {
		return 0
	}
	return h.units + h.Others.Units
}

// Number returns the number of live holds.
func (h *Holds) Number() int64 {
	if h == nil {
		return 0
	}
	return int64(h.live) + h.Others.Number
}

// Until returns the latest time at which a live hold expires, 0 without any.
func (h *Holds) Until() int64 {
	if h == nil {
		return 0
	}
	for i := len(h.list) - 1; i >= 0; i-- {
		if h.list[i].Expires != gone {
			return max(h.list[i].Expires, h.Others.Until)
		}
	}
	return h.Others.Until
}

// Live returns the live holds whose ids are known, the first to expire first.
func (h *Holds) Live() []HoldCost {
	if h == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(h.list[h.first:]), func(c HoldCost) bool { return c.Expires == gone })
}

// Clone returns a copy that shares nothing with h.
func (h *Holds) Clone() *Holds {
	if h == nil {
		return nil
	}
	c := *h
	c.list, c.index, c.next = slices.Clone(h.list), slices.Clone(h.index), slices.Clone(h.next)
	return &c
}

// Add adds a hold. One that expires last, as a new one does, is added in constant time.
func (h *Holds) Add(c HoldCost) {
	if len(h.list) == cap(h.list) {
		h.rebuild(1)
	}
	h.live++
	h.units += int64(c.Cost)
	at := len(h.list)
	for at > h.first && (h.list[at-1].Expires > c.Expires || h.list[at-1].Expires == gone) {
		at--
	}
	if at < len(h.list) && slices.ContainsFunc(h.list[at:], func(c HoldCost) bool { return c.Expires != gone }) {
		h.list = slices.Insert(h.list, at, c)
		h.rebuild(0)
		return
	}
	h.list = append(h.list, c)
	h.enter(len(h.list) - 1)
}

// remove removes the hold of an id that expires first, or at a time if that is not 0. It reports whether there is one.
func (h *Holds) remove(id HoldID, expires int64) bool {
	at := h.find(id, expires)
	if at < 0 {
		return false
	}
	h.end(at)
	if dead := len(h.list) - h.live; dead > h.live/4+shortList {
		h.rebuild(0)
	}
	return true
}

// end ends the live hold at a place.
func (h *Holds) end(at int) {
	h.units -= int64(h.list[at].Cost)
	h.list[at].Expires = gone
	h.live--
}

// find returns the place of a hold, -1 for none.
func (h *Holds) find(id HoldID, expires int64) int {
	if h == nil {
		return -1
	}
	is := func(at int) bool {
		c := &h.list[at]
		return c.ID == id && c.Expires != gone && (expires == 0 || c.Expires == expires)
	}
	if len(h.index) == 0 {
		for at := h.first; at < len(h.list); at++ {
			if is(at) {
				return at
			}
		}
		return -1
	}
	last := int(*h.slot(id)) - 1
	if last < 0 {
		return -1
	}
	for {
		at := int(h.next[last])
		switch {
		case is(at):
			return at
		case at == last:
			return -1
		case h.list[at].Expires == gone: // the first of its id, so it is not needed any more
			h.next[last] = h.next[at]
			continue
		}
		for before := at; before != last; before = at { // a hold that is undone may be any of its id
			if at = int(h.next[before]); is(at) {
				return at
			}
		}
		return -1
	}
}

// slot returns the slot of an id in the index.
func (h *Holds) slot(id HoldID) *uint16 {
	mask := uint64(len(h.index) - 1)
	for i := maphash.Bytes(h.seed, id[:]) & mask; ; i = (i + 1) & mask {
		if place := h.index[i]; place == 0 || h.list[place-1].ID == id {
			return &h.index[i]
		}
	}
}

// enter enters the hold at the end of the list into the index.
func (h *Holds) enter(at int) {
	if len(h.index) == 0 {
		return
	}
	slot := h.slot(h.list[at].ID)
	h.next = append(h.next, uint16(at))
	if last := int(*slot) - 1; last >= 0 {
		h.next[at], h.next[last] = h.next[last], uint16(at)
	}
	*slot = uint16(at + 1)
}

// rebuild drops the holds that were removed, and makes room for that many more and a quarter of all.
func (h *Holds) rebuild(more int) {
	room := h.live + more
	room += room / 4
	list := make([]HoldCost, 0, room)
	for _, c := range h.list[h.first:] {
		if c.Expires != gone {
			list = append(list, c)
		}
	}
	h.list, h.first, h.index, h.next = list, 0, nil, nil
	if room <= shortList || room > longestIndexed {
		return
	}
	size := shortList
	for size < room+room/4 {
		size *= 2
	}
	h.index, h.next, h.seed = make([]uint16, size), make([]uint16, 0, room), maphash.MakeSeed()
	for at := range h.list {
		h.enter(at)
	}
}

// expired removes the first hold that has expired at a time and returns it.
func (h *Holds) expired(x int64) (c HoldCost, ok bool) {
	for ; h.first < len(h.list); h.first++ {
		if c = h.list[h.first]; c.Expires == gone {
			continue
		}
		if c.Expires > x {
			break
		}
		h.end(h.first)
		return c, true
	}
	if h.Others.Number > 0 && h.Others.Until <= x {
		c = HoldCost{Cost: uint64(h.Others.Units), Expires: h.Others.Until}
		h.Others = SomeHolds{}
		return c, true
	}
	return HoldCost{}, false
}

// cut makes no hold expire later than a time. It reports whether one has changed.
func (h *Holds) cut(latest int64) (changed bool) {
	for at := len(h.list) - 1; at >= h.first; at-- {
		if c := &h.list[at]; c.Expires > latest {
			c.Expires, changed = latest, true
		} else if c.Expires != gone {
			break
		}
	}
	if h.Others.Until > latest {
		h.Others.Until, changed = latest, true
	}
	return changed
}
