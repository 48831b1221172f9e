package memstore

import (
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// HeldKey is the length of the key of a Held, in bytes.
const HeldKey = 16

// Handle names a bucket that its owner decides on. A copy of it finds the bucket faster once Edit has found it.
type Handle struct {
	// Key names the bucket. It is a keyed hash, so that clients cannot choose the place of a bucket in a table.
	Key [HeldKey]byte
	// Rule is the Take.Rule of the bucket.
	Rule uint64
	// at is the slot of the bucket + 1, if it still has the key; 0 if it is not known.
	at uint32
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
	// Note is what else its owner knows of the bucket.
	Note
	// Extra is more, which few buckets have. It is dropped with the bucket.
	Extra any
	// Changed makes Edit keep the bucket until the time Expires of the store's clock, or drop it if that is 0.
	Changed bool
	Expires int64
}

// Note is what a replica knows of a bucket in a shared store. A memory store only keeps it.
type Note struct {
	// Clock is the time of the shared store in the answer that has shown the state, 0 if none has.
	Clock int64
	// Heard is the local time of the last answer. It may be another one, which the state includes.
	Heard int64
	// Epoch is that of the server when the request for that answer was sent.
	Epoch uint64
	// Trip is the time from sending that request to receiving the answer, in µs.
	Trip int64
	// Unanswered are the units of takes on the wire.
	Unanswered int64
	// Confirmed means that the shared store has shown the state, and nothing is known that has made the bucket emptier
	// since.
	Confirmed bool
	// Cut means that the state is a log of which the shared store has sent only the oldest part (bucket.Seen.Cut).
	Cut bool
	// Suspect means that the shared store may hold less than the state.
	Suspect bool
	// Proved means that an answer has shown less than was known.
	Proved bool
}

// Edit reads buckets of different keys, calls edit, and keeps those that it changed. No other call of Edit has one of
// the buckets meanwhile. A Store has either Edit or Take, and a Store with Edit has no snapshot.
func (s *Store) Edit(buckets []Held, edit func()) {
	shards := shardSet(0)
	for i := range buckets {
		shards |= 1 << (buckets[i].digest().hash() >> s.shift)
	}
	s.lock(shards)
	defer s.unlock(shards)
	for i := range buckets {
		h := &buckets[i]
		s.shardOf(h.digest()).read(h)
	}
	edit()
	for i := range buckets {
		if h := &buckets[i]; h.Changed {
			s.shardOf(h.digest()).write(h, s.clock)
		}
	}
}

// digest returns the key, which is a digest already.
func (h *Handle) digest() *digest { return (*digest)(&h.Key) }

// slotOf returns the slot of a bucket, or noSlot.
func (sh *shard) slotOf(h *Handle) uint32 {
	t := &sh.table
	if slot := h.at - 1; slot < t.slots && t.at(slot).digest == *h.digest() {
		return slot
	}
	slot := t.find(h.digest())
	h.at = slot + 1 // 0 for noSlot
	return slot
}

// read reads what the shard has of a bucket.
func (sh *shard) read(h *Held) {
	*h = Held{Handle: h.Handle}
	slot := sh.slotOf(&h.Handle)
	if slot == noSlot {
		return
	}
	e, beside := sh.table.at(slot), sh.table.notes.at(slot)
	h.Found, h.Limit, h.Ahead, h.Note = true, *sh.table.limits.at(e.limit), beside.ahead, beside.Note
	var log []bucket.Grant // its owner keeps it
	sh.table.state(e, &h.State, &log)
	if beside.extra != 0 {
		h.Extra = *sh.table.notes.extras.at(beside.extra)
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
	t := bucket.Take{Rule: h.Rule, Limit: h.Limit}
	slot = sh.put(&t, h.digest(), slot, &h.State, now, seconds(h.Expires))
	sh.table.notes.set(slot, h)
}
