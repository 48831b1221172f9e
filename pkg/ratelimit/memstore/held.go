package memstore

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const (
	// HeldKey is the length of the key of a Held, in bytes.
	HeldKey = 16
	// HeldNote is the length of its note.
	HeldNote = 40

	heldAhead, heldExtra, heldNote = HeldKey, HeldKey + 8, HeldKey + 12 // where entry.key has the fields of a Held
)

// Held is a bucket that its owner decides on. The store only keeps it: see Store.Edit.
type Held struct {
	// Key names the bucket, and Rule is its Take.Rule. The caller of Edit sets them.
	Key  [HeldKey]byte
	Rule uint64
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
	// Changed makes Edit keep the bucket until the time Expires of the store's clock, or drop it if that has passed.
	Changed bool
	Expires int64
}

// Edit reads buckets of different keys, calls edit with the time, and keeps those that it changed. No other call of
// Edit has one of the buckets meanwhile. A Store has either Edit or Take, and a Store with Edit has no snapshot.
func (s *Store) Edit(buckets []Held, edit func(now int64)) {
	var few [16]uint64
	hashes, shards := few[:0], shardSet(0)
	for i := range buckets {
		hash := maphash.Bytes(s.seed, buckets[i].Key[:])
		hashes = append(hashes, hash)
		shards |= 1 << (hash >> s.shift)
	}
	s.lock(shards)
	defer s.unlock(shards)
	for i := range buckets {
		s.shardOf(hashes[i]).read(&buckets[i], hashes[i])
	}
	now := s.clock()
	edit(now)
	for i := range buckets {
		if buckets[i].Changed {
			s.shardOf(hashes[i]).write(&buckets[i], hashes[i], now)
		}
	}
}

// read reads what the shard has of a bucket.
func (sh *shard) read(h *Held, hash uint64) {
	*h = Held{Key: h.Key, Rule: h.Rule}
	slot := sh.table.find(hash, string(h.Key[:]))
	if slot == noSlot {
		return
	}
	e := sh.table.at(slot)
	h.Found, h.Limit, h.Ahead = true, e.limit(), e.ahead()
	sh.stateOf(e, &h.State)
	copy(h.Note[:], e.key[heldNote:])
	if extra := e.extra(); extra != 0 {
		h.Extra = *sh.table.extras.at(extra)
	}
}

// write keeps or drops a bucket.
func (sh *shard) write(h *Held, hash uint64, now int64) {
	slot := sh.table.find(hash, string(h.Key[:])) // now: another bucket of the same Edit may have evicted it
	if h.Expires <= now {
		if slot != noSlot {
			sh.remove(slot)
		}
		return
	}
	t := bucket.Take{Key: string(h.Key[:]), Rule: h.Rule, Limit: h.Limit}
	e := sh.put(&t, hash, slot, &h.State, now, seconds(h.Expires))
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
