package memstore

import (
	"math"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// table is a hash table of entries, which never change their slots. It is not safe for concurrent use.
type table struct {
	index   index
	entries chunks[entry]
	// slots is how many slots were ever used, and used how many are now.
	slots, used uint32
	// free is the first free slot + 1, 0 for none. The place of a free entry is the next one.
	free uint32

	limits limits
	logs   logs
	keys   *chunks[string] // for the snapshot, by slot; nil without one
	notes  notes
	groups groups
}

// live returns the number of entries.
func (t *table) live() int { return int(t.used) }

// at returns the entry in a slot < t.slots.
func (t *table) at(slot uint32) *entry { return t.entries.at(slot) }

// noSlot stands for the slot of a key that has no entry.
const noSlot = math.MaxUint32

// find returns the slot of a key, or noSlot.
func (t *table) find(d *digest) uint32 {
	if t.used == 0 {
		return noSlot
	}
	hash := uint32(d.hash())
	s := t.index.segment(hash)
	for i := hash; ; i++ {
		place := s[i%segmentLen]
		if place == 0 {
			return noSlot
		}
		if hashOf(place) == hash {
			if slot := slotOf(place); t.at(slot).digest == *d {
				return slot
			}
		}
	}
}

// insert makes an entry for a new key, empty except for key and rule. It returns the slot. It keeps no reference to the
// key.
func (t *table) insert(d *digest, key string, rule uint64) (slot uint32) {
	if slot = t.free - 1; t.free != 0 {
		t.free = t.at(slot).place
	} else {
		slot = t.slots
		t.entries.reach(slot)
		t.slots++
	}
	t.index.add(newPlace(d.hash(), slot), t.live())
	t.used++
	*t.at(slot) = entry{digest: *d}
	if t.keys != nil {
		t.keys.reach(slot)
		*t.keys.at(slot) = strings.Clone(key)
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
	t.index.remove(newPlace(e.digest.hash(), slot))
	if e.limit != 0 {
		t.limits.release(e.limit)
	}
	if e.grants != 0 {
		t.logs.remove(e.grants)
	}
	if t.keys != nil {
		*t.keys.at(slot) = ""
	}
	t.notes.remove(slot)
	t.leave(e)
	*e = entry{place: t.free}
	t.free = slot + 1
	t.used--
}
