package memstore

import (
	"encoding/binary"
	"math"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// HeldKey is the length of the key of a Held, in bytes.
const HeldKey = 16

// The places in entry.key of the fields of a Held.
const (
	heldAhead = HeldKey + 8*iota
	heldClock
	heldHeard
	heldEpoch
	heldTrip       // 4 bytes
	heldFlags      // 4 bytes
	heldUnanswered = heldTrip + 4
	heldExtra      = heldFlags + 4
)

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
	// Trip is the time from sending that request to receiving the answer, in µs. Unanswered are the units of takes on the
	// wire. Both are kept up to 2³² − 1.
	Trip, Unanswered int64
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
	if slot := h.at - 1; slot < t.slots && [HeldKey]byte(t.at(slot).key[:]) == h.Key {
		return slot
	}
	slot := t.find(h.hash(), string(h.Key[:]))
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
	e := sh.table.at(slot)
	h.Found, h.Limit, h.Ahead = true, e.limit(), e.ahead()
	sh.stateOf(e, &h.State)
	h.Note = e.note()
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
	e.setNote(&h.Note)
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

// note returns Held.Note of an entry.
func (e *entry) note() Note {
	number := binary.LittleEndian.Uint64
	return Note{
		Clock: int64(number(e.key[heldClock:])), Heard: int64(number(e.key[heldHeard:])), Epoch: number(e.key[heldEpoch:]),
		Trip:       int64(binary.LittleEndian.Uint32(e.key[heldTrip:])),
		Unanswered: int64(binary.LittleEndian.Uint32(e.key[heldUnanswered:])),
		Confirmed:  e.key[heldFlags] != 0, Cut: e.key[heldFlags+1] != 0,
		Suspect: e.key[heldFlags+2] != 0, Proved: e.key[heldFlags+3] != 0,
	}
}

func (e *entry) setNote(n *Note) {
	binary.LittleEndian.PutUint64(e.key[heldClock:], uint64(n.Clock))
	binary.LittleEndian.PutUint64(e.key[heldHeard:], uint64(n.Heard))
	binary.LittleEndian.PutUint64(e.key[heldEpoch:], n.Epoch)
	binary.LittleEndian.PutUint32(e.key[heldTrip:], uint32(min(n.Trip, math.MaxUint32)))
	binary.LittleEndian.PutUint32(e.key[heldUnanswered:], uint32(min(n.Unanswered, math.MaxUint32)))
	e.key[heldFlags], e.key[heldFlags+1] = oneIf(n.Confirmed), oneIf(n.Cut)
	e.key[heldFlags+2], e.key[heldFlags+3] = oneIf(n.Suspect), oneIf(n.Proved)
}

func oneIf(b bool) byte {
	if b {
		return 1
	}
	return 0
}
