package memstore

import (
	"math"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// chunkLen is how many entries are allocated together, so that a growing table moves none.
const chunkLen = 256

// table is a hash table of entries, which never change their slots. It is not safe for concurrent use.
type table struct {
	// index is open addressing with linear probing. A place holds the low 32 bits of a hash and a slot + 1, or 0 if it is
	// free. Its length is a power of two, of which at most three quarters are used.
	index  []uint64
	chunks []*[chunkLen]entry
	// slots is how many slots were ever used; free are those that are free now.
	slots uint32
	free  []uint32

	limits limits
	logs   pool[[]bucket.Grant]
	keys   *pool[string] // for the snapshot; nil without one
	notes  notes
	groups groups
}

// live returns the number of entries.
func (t *table) live() int { return int(t.slots) - len(t.free) }

// at returns the entry in a slot < t.slots.
func (t *table) at(slot uint32) *entry { return &t.chunks[slot/chunkLen][slot%chunkLen] }

// noSlot stands for the slot of a key that has no entry.
const noSlot = math.MaxUint32

// find returns the slot of a key, or noSlot.
func (t *table) find(d *digest) uint32 {
	if len(t.index) == 0 {
		return noSlot
	}
	hash := d.hash()
	for mask, i := uint32(len(t.index)-1), uint32(hash); ; i++ {
		place := t.index[i&mask]
		if place == 0 {
			return noSlot
		}
		if uint32(place>>32) != uint32(hash) {
			continue
		}
		if slot := uint32(place) - 1; t.at(slot).digest == *d {
			return slot
		}
	}
}

// insert makes an entry for a new key, empty except for key and rule. It returns the slot. It keeps no reference to the
// key.
func (t *table) insert(d *digest, key string, rule uint64) (slot uint32) {
	if 4*(t.live()+1) > 3*len(t.index) {
		t.grow()
	}
	if n := len(t.free); n > 0 {
		slot, t.free = t.free[n-1], t.free[:n-1]
	} else {
		slot = t.slots
		if slot%chunkLen == 0 {
			t.chunks = append(t.chunks, new([chunkLen]entry))
		}
		t.slots++
	}
	place(t.index, d.hash()<<32|uint64(slot+1))
	e := t.at(slot)
	e.digest = *d
	if t.keys != nil {
		e.key = t.keys.add(strings.Clone(key))
	}
	t.join(slot, rule)
	return slot
}

// setLimit sets the limit of the last charge.
func (t *table) setLimit(e *entry, limit *bucket.Limit) {
	if e.limit != 0 {
		if *t.limits.at(e.limit) == *limit {
			return
		}
		t.limits.release(e.limit)
	}
	e.limit = t.limits.use(limit)
}

// remove drops the entry in a slot.
func (t *table) remove(slot uint32) {
	e := t.at(slot)
	hash := e.digest.hash()
	if e.limit != 0 {
		t.limits.release(e.limit)
	}
	if e.grants != 0 {
		t.logs.remove(e.grants)
	}
	if e.key != 0 {
		t.keys.remove(e.key)
	}
	t.notes.remove(slot)
	t.leave(e)
	*e = entry{}
	t.free = append(t.free, slot)
	t.unplace(hash, slot)
}

// unplace removes a slot from the index and moves the places behind it up, so that no probe ends too early.
func (t *table) unplace(hash uint64, slot uint32) {
	mask := uint32(len(t.index) - 1)
	hole := uint32(hash) & mask
	for uint32(t.index[hole]) != slot+1 {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.index[i] != 0; i = (i + 1) & mask {
		// The place at i may move to the hole unless its probe begins behind the hole.
		begin := uint32(t.index[i]>>32) & mask
		if (i-begin)&mask >= (i-hole)&mask {
			t.index[hole] = t.index[i]
			hole = i
		}
	}
	t.index[hole] = 0
}

// grow doubles the index. The index has the hashes, so no entry is read.
func (t *table) grow() {
	index := make([]uint64, max(8, 2*len(t.index)))
	for _, p := range t.index {
		if p != 0 {
			place(index, p)
		}
	}
	t.index = index
}

// place writes a place of the index where a probe will find it.
func place(index []uint64, p uint64) {
	mask := uint32(len(index) - 1)
	i := uint32(p>>32) & mask
	for index[i] != 0 {
		i = (i + 1) & mask
	}
	index[i] = p
}

// pool keeps values that do not fit an entry, under numbers from 1.
type pool[T any] struct {
	items []T
	free  []uint32
}

func (p *pool[T]) add(item T) uint32 {
	if n := len(p.free); n > 0 {
		number := p.free[n-1]
		p.free = p.free[:n-1]
		p.items[number-1] = item
		return number
	}
	p.items = append(p.items, item)
	return uint32(len(p.items))
}

func (p *pool[T]) at(number uint32) *T { return &p.items[number-1] }

func (p *pool[T]) remove(number uint32) {
	var none T
	p.items[number-1] = none
	p.free = append(p.free, number)
}
