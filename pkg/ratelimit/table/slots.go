package table

import (
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// at returns the entry in a slot < sh.slots.
func (sh *Shard[N, E]) at(slot uint32) *entry { return sh.entries.at(slot) }

// NoSlot stands for the slot of a key that has no bucket.
const NoSlot = math.MaxUint32

// Find returns the slot of a bucket, or NoSlot.
func (sh *Shard[N, E]) Find(d *Digest) uint32 {
	if sh.used == 0 {
		return NoSlot
	}
	hash := uint32(d.hash())
	s := sh.index.segment(hash)
	for i := hash; ; i++ {
		place := s[i%segmentLen]
		if place == 0 {
			return NoSlot
		}
		if hashOf(place) == hash {
			if slot := slotOf(place); sh.at(slot).digest == *d {
				return slot
			}
		}
	}
}

// insert makes an entry for a new key, empty except for key and rule. It returns the slot.
func (sh *Shard[N, E]) insert(d *Digest, rule uint64) (slot uint32) {
	if slot = sh.free - 1; sh.free != 0 {
		sh.free = sh.at(slot).place
	} else {
		slot = sh.slots
		sh.entries.reach(slot)
		sh.slots++
	}
	sh.index.add(newPlace(d.hash(), slot), int(sh.used))
	sh.used++
	*sh.at(slot) = entry{digest: *d}
	sh.join(slot, rule)
	return slot
}

// setLimit sets the limit of the last charge.
func (sh *Shard[N, E]) setLimit(e *entry, limit *bucket.Limit) {
	if e.limit != 0 {
		if *sh.limits.at(e.limit) == *limit {
			return
		}
		sh.limits.release(e.limit)
	}
	e.limit = sh.limits.use(limit)
}

// remove drops the entry in a slot.
func (sh *Shard[N, E]) remove(slot uint32) {
	e := sh.at(slot)
	sh.index.remove(newPlace(e.digest.hash(), slot))
	if e.limit != 0 {
		sh.limits.release(e.limit)
	}
	if e.grants != 0 {
		sh.logs.remove(e.grants)
	}
	sh.DropExtra(slot)
	sh.leave(e)
	*e = entry{place: sh.free}
	sh.free = slot + 1
	sh.used--
}
