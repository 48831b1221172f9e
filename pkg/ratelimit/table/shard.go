package table

import (
	"cmp"
	"math"
	"math/bits"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// samples is how many buckets are compared to find one to evict.
const samples = 8

// Shard is a part of the buckets of a table: a hash table of entries that keep their slots. Its methods need its lock.
type Shard[N, E any] struct {
	capacity int

	// The counters are written under the lock and read without it. used is how many slots are in use.
	used                           atomic.Int64
	evicted, evictedHolds, expired atomic.Uint64
	// holds is that of the table.
	holds *atomic.Int64

	sync.Mutex

	index   index
	entries chunks[entry]
	slots   uint32 // how many were ever used
	// free is the first free slot + 1, 0 for none. The place of a free entry is the next one.
	free uint32

	limits limits
	logs   logs
	notes  chunks[N] // by slot
	extras pool[E]
	groups groups

	// probe is room for the bucket that evict reads, and probeLog for its log.
	probe    bucket.State
	probeLog []bucket.Grant

	_ [64]byte // puts the next shard's lock on another cache line
}

// Load reads the state of a bucket. It returns the bucket's slot, or NoSlot. room is memory for its log.
func (sh *Shard[N, E]) Load(d *Digest, s *bucket.State, room *[]bucket.Grant) (slot uint32) {
	if slot = sh.Find(d); slot == NoSlot {
		*s = bucket.State{}
		return NoSlot
	}
	sh.State(slot, s, room)
	return slot
}

// NoSlot stands for the slot of a key that has no bucket.
const NoSlot = math.MaxUint32

// Find returns the slot of a bucket, or NoSlot.
func (sh *Shard[N, E]) Find(d *Digest) uint32 {
	if sh.used.Load() == 0 {
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

// Has returns the slot of a bucket, or NoSlot. likely is a slot in which the bucket was before.
func (sh *Shard[N, E]) Has(d *Digest, likely uint32) (slot uint32) {
	if likely < sh.slots && sh.at(likely).digest == *d {
		return likely
	}
	return sh.Find(d)
}

// Clock is the time at which a bucket is put into a table.
type Clock struct {
	// Now is the time by which buckets expire.
	Now int64
	// Ahead is how far the clock of the states of buckets is ahead of that.
	Ahead int64
}

// Add adds a bucket of a rule, which the table must not have, and returns its slot. Set must follow. In a full shard,
// the bucket replaces another one.
func (sh *Shard[N, E]) Add(d *Digest, rule uint64, clock Clock) (slot uint32) {
	if int(sh.used.Load()) >= sh.capacity {
		sh.evict(rule, clock)
	}
	if slot = sh.free - 1; sh.free != 0 {
		sh.free = sh.at(slot).place
	} else {
		slot = sh.slots
		sh.entries.reach(slot)
		sh.slots++
	}
	sh.index.add(newPlace(d.hash(), slot), int(sh.used.Load()))
	sh.used.Add(1)
	*sh.at(slot) = entry{digest: *d}
	sh.join(slot, rule)
	return slot
}

// Set stores a state, without its holds, and the limit of its last charge in the slot of a bucket. A bucket that has
// holds (SetHolds) does not expire earlier than before.
func (sh *Shard[N, E]) Set(slot uint32, limit *bucket.Limit, s *bucket.State, expires Expiry) {
	e := sh.at(slot)
	if e.limit == 0 || *sh.limits.at(e.limit) != *limit {
		if e.limit != 0 {
			sh.limits.release(e.limit)
		}
		e.limit = sh.limits.use(limit)
	}
	if e.holds > 0 {
		expires = max(expires, e.expires)
	}
	e.last, e.count, e.part, e.expires = s.Last, s.Count, s.Part, expires
	grants := s.Grants
	if len(grants) == 1 && grants[0].Cost == s.Count {
		e.part, grants = grants[0].At, nil
	}
	if e.grants != 0 || len(grants) > 0 {
		e.grants = sh.logs.set(e.grants, s.Last, grants)
	}
}

// Remove drops the bucket in a slot.
func (sh *Shard[N, E]) Remove(slot uint32) {
	e := sh.at(slot)
	place := newPlace(e.digest.hash(), slot)
	sh.index.segment(hashOf(place)).remove(place)
	if e.limit != 0 {
		sh.limits.release(e.limit)
	}
	if e.grants != 0 {
		sh.logs.remove(e.grants)
	}
	sh.DropExtra(slot)
	sh.SetHolds(slot, 0)
	sh.leave(e)
	*e = entry{place: sh.free}
	sh.free = slot + 1
	sh.used.Add(-1)
}

// at returns the entry in a slot < sh.slots.
func (sh *Shard[N, E]) at(slot uint32) *entry { return sh.entries.at(slot) }

// State reads the state of the bucket in a slot. The grants of its log use memory of room, or of the shard. A debt
// belongs to the rate of the limit of the last charge.
func (sh *Shard[N, E]) State(slot uint32, s *bucket.State, room *[]bucket.Grant) {
	e := sh.at(slot)
	u := sh.limits.pool.at(e.limit)
	*s = bucket.State{Last: e.last, Count: e.count, Part: e.part, Rate: u.rate}
	switch {
	case e.grants != 0:
		s.Part, s.Grants = 0, sh.logs.get(e.grants, e.last, room)
	case u.log && e.count > 0:
		s.Part, s.Grants = 0, reserve(room, 1)
		s.Grants[0] = bucket.Grant{At: e.part, Cost: e.count}
	}
}

// Limit returns the limit of the bucket in a slot.
func (sh *Shard[N, E]) Limit(slot uint32) *bucket.Limit { return sh.limits.at(sh.at(slot).limit) }

// Rule returns the rule of the bucket in a slot.
func (sh *Shard[N, E]) Rule(slot uint32) uint64 { return sh.groups.of(sh.at(slot).group).rule }

// Expires returns when the bucket in a slot expires, 0 for a free slot.
func (sh *Shard[N, E]) Expires(slot uint32) Expiry { return sh.at(slot).expires }

// Note returns the note of the bucket in a slot. A new bucket has that of an earlier one.
func (sh *Shard[N, E]) Note(slot uint32) *N {
	sh.notes.reach(slot)
	return sh.notes.at(slot)
}

// Extra returns the extra of the bucket in a slot, which is dropped with it. Without one, it is the zero value.
func (sh *Shard[N, E]) Extra(slot uint32) (extra E) {
	if n := sh.at(slot).extra; n != 0 {
		extra = *sh.extras.at(n)
	}
	return extra
}

// SetExtra sets the extra of the bucket in a slot.
func (sh *Shard[N, E]) SetExtra(slot uint32, extra E) {
	if e := sh.at(slot); e.extra == 0 {
		e.extra = sh.extras.add(extra)
	} else {
		*sh.extras.at(e.extra) = extra
	}
}

// DropExtra drops the extra of the bucket in a slot, if it has one.
func (sh *Shard[N, E]) DropExtra(slot uint32) {
	if e := sh.at(slot); e.extra != 0 {
		sh.extras.remove(e.extra)
		e.extra = 0
	}
}

// lockedSlots is how many slots are read under one lock: some tens of µs (BenchmarkHolds of memstore).
const lockedSlots = 128

// Each calls f for each bucket. It locks a few slots at a time.
func (sh *Shard[N, E]) Each(f func(slot uint32)) {
	all := func(slot uint32) bool {
		f(slot)
		return true
	}
	for from, more := uint32(0), true; more; {
		from, more = sh.EachFrom(from, all)
	}
}

// EachFrom locks the shard and calls f for the buckets in some slots, until f returns false. f may remove its bucket.
// next is the next slot, and more whether there is one.
func (sh *Shard[N, E]) EachFrom(from uint32, f func(slot uint32) bool) (next uint32, more bool) {
	sh.Lock()
	defer sh.Unlock()
	end := min(from+lockedSlots, sh.slots)
	for goOn := true; from < end && goOn; from++ {
		goOn = sh.at(from).expires == 0 || f(from)
	}
	return from, from < sh.slots
}

// Expire drops the bucket in a slot if it has expired.
func (sh *Shard[N, E]) Expire(slot uint32, now int64) {
	if sh.at(slot).expires.Passed(now) {
		sh.Remove(slot)
		sh.expired.Add(1)
	}
}

// evict drops one bucket of a full shard for a new bucket of a rule. The victim is of the rule with the most buckets.
// So a flood of new keys of one rule displaces those of another only until both rules have as many. The windows of the
// rules, and how much of them is used, do not matter.
//
// Of that rule, evict samples a few buckets at random. It drops an expired one, else the one with the greatest part of
// its quota left; of equals, the one that expires first. So a client over its limit is evicted only if all sampled
// clients are over theirs. The new bucket is always kept, even if it is less used than its victim. Otherwise a full
// table would not limit new clients at all.
//
// A bucket with live holds is evicted only if all buckets of that rule have some: what they hold would be given away.
func (sh *Shard[N, E]) evict(rule uint64, clock Clock) {
	g := sh.groups.largest(rule)
	var victim uint32
	var least usage
	slots := g.slots[g.holding:]
	if len(slots) == 0 {
		slots = g.slots
	}
	for i := range min(len(slots), samples) {
		slot := slots[i]
		if len(slots) > samples {
			slot = slots[rand.IntN(len(slots))]
		}
		if used := sh.usage(slot, clock); i == 0 || used.less(least) {
			victim, least = slot, used
		}
	}
	if least.expires.Passed(clock.Now) {
		sh.expired.Add(1)
	} else {
		sh.evicted.Add(1)
		if sh.Holds(victim) > 0 {
			sh.evictedHolds.Add(1)
		}
	}
	sh.Remove(victim)
}

// usage is the value of a bucket for its client: the more is used, the less it may be evicted.
type usage struct {
	remaining, capacity int64
	expires             Expiry
}

func (sh *Shard[N, E]) usage(slot uint32, clock Clock) usage {
	e := sh.at(slot)
	if e.expires.Passed(clock.Now) {
		return usage{remaining: 1, capacity: 1, expires: e.expires}
	}
	p, limit := &sh.probe, sh.limits.at(e.limit)
	sh.probeLog = sh.probeLog[:0]
	sh.State(slot, p, &sh.probeLog)
	remaining := p.Remaining(limit, max(clock.Now+clock.Ahead, e.last)) // a step back would rewrite the log
	return usage{remaining: remaining, capacity: limit.Capacity(), expires: e.expires}
}

// less reports whether less of u's quota is used than of v's. It is exact.
func (u usage) less(v usage) bool {
	aHigh, aLow := bits.Mul64(uint64(u.remaining), uint64(v.capacity))
	bHigh, bLow := bits.Mul64(uint64(v.remaining), uint64(u.capacity))
	return cmp.Or(cmp.Compare(bHigh, aHigh), cmp.Compare(bLow, aLow), cmp.Compare(u.expires, v.expires)) < 0
}
