package bucket

import (
	"hash/maphash"
	"slices"
	"sort"
)

// Holds are the live holds of a bucket. The nil pointer and the zero value have none. A hold takes at most 64 bytes,
// with its place in the index, beside the 64 bytes of Holds.
type Holds struct {
	// list has the holds, the first to expire first; of equal ones, the one that was added first. In a long list, a hold
	// that has ended stays until the next rebuild, with a cost of 0.
	list []HoldCost
	// long is nil for a short list.
	long *longHolds
	// Others are holds of which only this is known.
	Others SomeHolds
	// Release is Hold.Release of the last reserve, for a store that ends holds which no request meets.
	Release bool
}

// longHolds is what a list of many holds needs to be fast.
type longHolds struct {
	// units is the sum of the costs of the live holds, and live their number.
	units int64
	live  int
	// first is the place of the first hold that may be live.
	first int
	// index is a hash table of the last place of each id in the list, plus 1; 0 for none. next has the next place of the
	// same id for each place, and for the last one the first that may be live.
	index, next []uint16
	// seed is that of the hash: a client may know how its ids are made.
	seed maphash.Seed
}

// SomeHolds is a sum of holds whose ids are not known: a shared store shows only it.
type SomeHolds struct {
	Units, Number int64
	// Until is the latest time at which one of them expires.
	Until int64
}

// Plus returns the sum of both, of which Until does not matter.
func (s SomeHolds) Plus(more SomeHolds) SomeHolds {
	return SomeHolds{Units: s.Units + more.Units, Number: s.Number + more.Number}
}

const (
	// shortList is how many holds are searched without an index.
	shortList = 16
	// longestIndexed is the longest list whose places an index can have.
	longestIndexed = 1<<16 - 2
)

// HoldsOf returns the holds of a list as that of Live. ok is false if no bucket can have them.
func HoldsOf(list []HoldCost) (h *Holds, ok bool) {
	h = new(Holds)
	for last, units := int64(1), uint64(0); len(list) > 0; list = list[1:] {
		c := list[0]
		if c.Cost < 1 || c.Cost > MaxWindowRequests-units || c.Expires < last {
			return nil, false
		}
		last, units = c.Expires, units+c.Cost
		h.Add(c)
	}
	return h, true
}

// Units returns the sum of the costs of all live holds.
func (h *Holds) Units() int64 {
	if h == nil {
		return 0
	}
	units := h.Others.Units
	if h.long != nil {
		return units + h.long.units
	}
	for i := range h.list {
		units += int64(h.list[i].Cost)
	}
	return units
}

// Number returns the number of live holds.
func (h *Holds) Number() int64 {
	if h == nil {
		return 0
	}
	return int64(h.live()) + h.Others.Number
}

// live returns the number of live holds whose ids are known.
func (h *Holds) live() int {
	if h.long != nil {
		return h.long.live
	}
	return len(h.list)
}

// Until returns the latest time at which a live hold expires, 0 without any.
func (h *Holds) Until() int64 {
	if h == nil {
		return 0
	}
	for i := len(h.list) - 1; i >= 0; i-- {
		if h.list[i].Cost > 0 {
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
	return appendLive(make([]HoldCost, 0, h.live()), h.list)
}

// At returns the sum of the holds that are live at a time.
func (h *Holds) At(now int64) (sum SomeHolds) {
	if h == nil {
		return sum
	}
	if h.Others.Until > now {
		sum = h.Others
	}
	for i := range h.list {
		if c := &h.list[i]; c.Cost > 0 && c.Expires > now {
			sum.Units, sum.Number = sum.Units+int64(c.Cost), sum.Number+1
		}
	}
	return sum
}

// appendLive appends the live holds of a list.
func appendLive(live, list []HoldCost) []HoldCost {
	for i := range list {
		if list[i].Cost > 0 {
			live = append(live, list[i])
		}
	}
	return live
}

// Clone returns a copy that shares nothing with h.
func (h *Holds) Clone() *Holds {
	if h == nil {
		return nil
	}
	c := *h
	c.list = slices.Clone(h.list)
	if h.long != nil {
		long := *h.long
		long.index, long.next = slices.Clone(long.index), slices.Clone(long.next)
		c.long = &long
	}
	return &c
}

// Add adds a hold with a cost above 0. One that expires last, as a new one does, is added in constant time.
func (h *Holds) Add(c HoldCost) {
	if len(h.list) == cap(h.list) {
		h.rebuild(1)
	}
	at := len(h.list)
	for at > 0 && h.list[at-1].Expires > c.Expires {
		at--
	}
	h.list = slices.Insert(h.list, at, c)
	if h.long == nil {
		return
	}
	h.long.live++
	h.long.units += int64(c.Cost)
	if at < len(h.list)-1 {
		h.rebuild(0)
	} else {
		h.enter(at)
	}
}

// Remove removes the hold of an id that expires first, or at a time if that is not 0. It reports whether there is one.
func (h *Holds) Remove(id HoldID, expires int64) bool {
	at := h.find(id, expires)
	if at < 0 {
		return false
	}
	h.end(at)
	h.tidy()
	return true
}

// end ends the live hold at a place.
func (h *Holds) end(at int) {
	if h.long == nil {
		h.list = slices.Delete(h.list, at, at+1)
		return
	}
	h.long.units -= int64(h.list[at].Cost)
	h.long.live--
	h.list[at].Cost = 0
}

// tidy gives memory back if many holds have ended.
func (h *Holds) tidy() {
	if h.long != nil && len(h.list)-h.long.live > h.long.live/4+shortList {
		h.rebuild(0)
	}
}

// find returns the place of the live hold of an id that expires first, or at a time if that is not 0; -1 for none.
func (h *Holds) find(id HoldID, expires int64) int {
	if h == nil {
		return -1
	}
	if expires == 0 && h.long != nil && len(h.long.index) > 0 {
		last := int(*h.slot(id)) - 1
		if last < 0 {
			return -1
		}
		at := int(h.long.next[last])
		for at != last && h.list[at].Cost == 0 {
			at = int(h.long.next[at])
		}
		h.long.next[last] = uint16(at) // those before it are not needed any more
		if h.list[at].Cost == 0 {
			return -1
		}
		return at
	}
	at := 0
	if expires != 0 {
		at = sort.Search(len(h.list), func(i int) bool { return h.list[i].Expires >= expires })
	}
	for ; at < len(h.list) && (expires == 0 || h.list[at].Expires == expires); at++ {
		if h.list[at].ID == id && h.list[at].Cost > 0 {
			return at
		}
	}
	return -1
}

// slot returns the slot of an id in the index.
func (h *Holds) slot(id HoldID) *uint16 {
	index := h.long.index
	mask := uint64(len(index) - 1)
	for i := maphash.Bytes(h.long.seed, id[:]) & mask; ; i = (i + 1) & mask {
		if place := index[i]; place == 0 || h.list[place-1].ID == id {
			return &index[i]
		}
	}
}

// enter enters the hold at a place behind all others into the index.
func (h *Holds) enter(at int) {
	l := h.long
	if len(l.index) == 0 {
		return
	}
	slot := h.slot(h.list[at].ID)
	l.next = append(l.next, uint16(at))
	if last := int(*slot) - 1; last >= 0 {
		l.next[at], l.next[last] = l.next[last], uint16(at)
	}
	*slot = uint16(at + 1)
}

// rebuild drops the holds that have ended, and makes room for that many more and a quarter of all.
func (h *Holds) rebuild(more int) {
	live, units := h.live(), h.Units()-h.Others.Units
	room := live + more
	room += room / 4
	list := h.list[:0]
	if cap(list) < room || cap(list) > room+room/4 {
		list = make([]HoldCost, 0, room)
	}
	h.list = appendLive(list, h.list)
	if cap(list) <= shortList {
		h.long = nil
		return
	}
	if h.long == nil {
		h.long = &longHolds{seed: maphash.MakeSeed()}
	}
	l := h.long
	l.live, l.units, l.first = live, units, 0
	h.index(cap(list))
}

// index makes the index of a long list with that much room.
func (h *Holds) index(room int) {
	l, size := h.long, shortList
	for size < room+room/4 {
		size *= 2
	}
	switch {
	case room > longestIndexed:
		l.index, l.next = nil, nil
		return
	case len(l.index) == size && cap(l.next) == room:
		clear(l.index)
		l.next = l.next[:0]
	default:
		l.index, l.next = make([]uint16, size), make([]uint16, 0, room)
	}
	for at := range h.list {
		h.enter(at)
	}
}

// Expired reports whether a hold whose id is known has expired at the time now.
func (h *Holds) Expired(now int64) bool {
	i := slices.IndexFunc(h.list, func(c HoldCost) bool { return c.Cost > 0 })
	return i >= 0 && h.list[i].Expires <= now
}

// Expire removes and returns the holds that have expired at the time now, the first one first. It makes none live
// longer than to the time latest, and reports whether that has cut one.
func (h *Holds) Expire(now, latest int64) (expired []HoldCost, cut bool) {
	cut = h.cut(latest)
	for c, ok := h.expired(now); ok; c, ok = h.expired(now) {
		expired = append(expired, c)
	}
	h.tidy()
	return expired, cut
}

// expired removes the first hold that has expired at a time and returns it.
func (h *Holds) expired(x int64) (c HoldCost, ok bool) {
	first := 0
	if h.long != nil {
		for h.long.first < len(h.list) && h.list[h.long.first].Cost == 0 {
			h.long.first++
		}
		first = h.long.first
	}
	if first < len(h.list) && h.list[first].Expires <= x {
		c = h.list[first]
		h.end(first)
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
	for at := len(h.list) - 1; at >= 0 && h.list[at].Expires > latest; at-- {
		h.list[at].Expires, changed = latest, changed || h.list[at].Cost > 0
	}
	if h.Others.Until > latest {
		h.Others.Until, changed = latest, true
	}
	return changed
}
