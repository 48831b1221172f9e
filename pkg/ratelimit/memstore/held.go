package memstore

import (
	"encoding/binary"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const (
	// HeldKey is the length of the key of a Held, in bytes.
	HeldKey = 16
	// HeldNote is the length of its note.
	HeldNote = 40

	heldAhead, heldExtra, heldNote = HeldKey, HeldKey + 8, HeldKey + 12 // where entry.key has the fields of a Held
)

// Handle names a bucket that its owner decides on. A copy of it finds the bucket faster once Edit has found it.
type Handle struct {
	// Key names the bucket. It is a keyed hash, so that clients cannot choose the place of a bucket in a table.
	Key [HeldKey]byte
	// Rule is the Take.Rule of the bucket.
	Rule uint64
	// place is the slot of the bucket + 1, if it still has the key; 0 if it is not known.
	place uint32
}

// Held is a bucket that its owner decides on. The store only keeps it: see Store.Edit.
type Held struct {
	// Handle names the bucket. The caller of Edit sets it.
	Handle
	// Found means that the store has the bucket. If not, the fields below are zero.
	Found bool
	// Limit and State are those by which a full store chooses what to evict. Nothing changes the Grants of a State in
	// place.
	Limit bucket.Limit
	State bucket.State
	// Ahead is how far the clock of the bucket is ahead of that of the store, in µs.
	Ahead int64
	// Note is anything else that its owner knows of the bucket.
	Note [HeldNote]byte
	// Extra is more, which few buckets have. It is dropped with the bucket.
	Extra any
	// Changed makes Edit keep the bucket until the time Expires of the store's clock, or drop it if that is 0.
	Changed bool
	Expires int64
}

// Edit reads buckets of different keys, calls edit, and keeps those that it changed. No other call of Edit has one of
// the buckets meanwhile. A Store has either Edit or Take, and a Store with Edit has no snapshot.
func (s *Store) Edit(buckets []Held, edit func()) {
	shards := shardSet(0)
	for i := range buckets {
		shards |= 1 << (buckets[i].hash() >> s.shift)
	}
	s.lock(shards)
	defer s.unlock(shards)
	for i := range buckets {
		h := &buckets[i]
		s.shardOf(h.hash()).read(h)
	}
	edit()
	for i := range buckets {
		if h := &buckets[i]; h.Changed {
			s.shardOf(h.hash()).write(h, s.clock)
		}
	}
}

// hash returns what Store.hash returns for the key of another bucket.
func (h *Handle) hash() uint64 { return binary.LittleEndian.Uint64(h.Key[:]) }

// slotOf returns the slot of a bucket, or noSlot.
func (sh *shard) slotOf(h *Handle) uint32 {
	t := &sh.table
	if slot := h.place - 1; slot < t.slots && [HeldKey]byte(t.at(slot).key[:]) == h.Key {
		return slot
	}
	slot := t.find(h.hash(), string(h.Key[:]))
	h.place = slot + 1 // 0 for noSlot
	return slot
}

// read reads what the shard has of a bucket.
func (sh *shard) read(h *Held) {
	*h = Held{Handle: h.Handle}
	slot := sh.slotOf(&h.Handle)
	if slot == noSlot {
		return
	}
	e := sh.table.at(slot)
	h.Found, h.Limit, h.Ahead = true, e.limit(), e.ahead()
	sh.stateOf(e, &h.State)
	h.Note = [HeldNote]byte(e.key[heldNote:])
	if extra := e.extra(); extra != 0 {
		h.Extra = *sh.table.extras.at(extra)
	}
}

// write keeps or drops a bucket.
func (sh *shard) write(h *Held, clock func() int64) {
	slot, now := uint32(noSlot), int64(0)
	if h.Found {
		slot = sh.slotOf(&h.Handle) // again: another bucket of the same Edit may have evicted it
	}
	switch {
	case h.Expires == 0 && slot != noSlot:
		sh.remove(slot)
		return
	case h.Expires == 0:
		return
	case slot == noSlot:
		now = clock() // for an eviction
	}
	t := bucket.Take{Key: string(h.Key[:]), Rule: h.Rule, Limit: h.Limit}
	e := sh.put(&t, h.hash(), slot, &h.State, now, seconds(h.Expires))
	e.keyLen = heldKeyLen
	binary.LittleEndian.PutUint64(e.key[heldAhead:], uint64(h.Ahead))
	copy(e.key[heldNote:], h.Note[:])
	extra := e.extra()
	switch {
	case extra == 0 && h.Extra != nil:
		extra = sh.table.extras.add(h.Extra)
	case extra != 0 && h.Extra != nil:
		*sh.table.extras.at(extra) = h.Extra
	case extra != 0:
		sh.table.extras.remove(extra)
		extra = 0
	}
	binary.LittleEndian.PutUint32(e.key[heldExtra:], extra)
}

// ahead returns Held.Ahead of an entry, 0 if Take keeps it.
func (e *entry) ahead() int64 {
	if e.keyLen != heldKeyLen {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(e.key[heldAhead:]))
}

// extra returns the number of Held.Extra of an entry in table.extras, 0 for none.
func (e *entry) extra() uint32 {
	if e.keyLen != heldKeyLen {
		return 0
	}
	return binary.LittleEndian.Uint32(e.key[heldExtra:])
}
