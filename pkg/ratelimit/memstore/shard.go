package memstore

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// samples is how many buckets are compared to find one to evict.
const samples = 8

// shard is a part of the buckets with a lock of its own.
type shard struct {
	capacity int

	// The counters are written under the lock and read without it.
	live             atomic.Int64
	evicted, expired atomic.Uint64

	mu    sync.Mutex
	table table
	// probe is room for the bucket that evict reads, and probeLog for its log.
	probe    bucket.State
	probeLog []bucket.Grant

	_ [64]byte // puts the next shard's lock on another cache line
}

// load reads the state of the bucket of a take. It returns the bucket's slot, or noSlot. room is memory for its log.
// The caller holds the lock.
func (sh *shard) load(d *digest, s *bucket.State, room *[]bucket.Grant) uint32 {
	*s = bucket.State{}
	slot := sh.table.find(d)
	if slot != noSlot {
		sh.table.state(sh.table.at(slot), s, room)
	}
	return slot
}

// keep stores the changed bucket of a decided take. slot is the bucket's current slot, or noSlot. The caller
// has held the lock since load.
func (sh *shard) keep(t *bucket.Take, d *digest, slot uint32, b *bucket.Loaded, resetAfter, now int64) {
	switch {
	case !b.State.Empty():
		sh.put(t, d, slot, &b.State, now, seconds(now+resetAfter))
	case slot != noSlot:
		sh.remove(slot)
	}
}

// put stores the bucket of a take, which is not empty, in its slot. If it has none, it gets one; in a full shard it
// replaces another bucket. It returns the bucket's slot.
func (sh *shard) put(t *bucket.Take, d *digest, slot uint32, s *bucket.State, now int64, expires uint32) uint32 {
	if slot == noSlot {
		if sh.table.live() >= sh.capacity {
			sh.evict(t.Rule, now)
		}
		slot = sh.table.insert(d, t.Key, t.Rule)
		sh.live.Add(1)
	}
	e := sh.table.at(slot)
	sh.table.setLimit(e, &t.Limit)
	sh.table.setState(e, s)
	e.expires = expires
	return slot
}

func (sh *shard) remove(slot uint32) {
	sh.table.remove(slot)
	sh.live.Add(-1)
}

// evict drops one bucket of a full shard for a new bucket of a rule. The victim is of the rule with the most buckets.
// So a flood of new keys of one rule displaces those of another only until both rules have as many. The windows of the
// rules, and how much of them is used, do not matter.
//
// Of that rule, evict samples a few buckets at random. It drops an expired one, else the one with the greatest part of
// its quota left; of equals, the one that expires first. So a client over its limit is evicted only if all sampled
// clients are over theirs. The new bucket is always kept, even if it is less used than its victim. Otherwise a full
// store would not limit new clients at all.
func (sh *shard) evict(rule uint64, now int64) {
	g := sh.table.groups.largest(rule)
	var victim uint32
	var least usage
	for i := range min(g.length, samples) {
		slot := *g.slot(i)
		if g.length > samples {
			slot = *g.slot(rand.Uint32N(g.length))
		}
		if used := sh.usage(slot, now); i == 0 || used.less(least) {
			victim, least = slot, used
		}
	}
	if expired(least.expires, now) {
		sh.expired.Add(1)
	} else {
		sh.evicted.Add(1)
	}
	sh.remove(victim)
}

// usage is the value of a bucket for its client: the more is used, the less it may be evicted.
type usage struct {
	remaining, capacity int64
	expires             uint32
}

func (sh *shard) usage(slot uint32, now int64) usage {
	e := sh.table.at(slot)
	if expired(e.expires, now) {
		return usage{remaining: 1, capacity: 1, expires: e.expires}
	}
	p, limit := &sh.probe, sh.table.limits.at(e.limit)
	sh.probeLog = sh.probeLog[:0]
	sh.table.state(e, p, &sh.probeLog)
	ahead := int64(0) // Held.Ahead
	if n := sh.table.notes.at(slot); n != nil {
		ahead = n.ahead
	}
	remaining := p.Remaining(limit, max(now+ahead, e.last)) // a step back would rewrite the log
	return usage{remaining: remaining, capacity: limit.Capacity(), expires: e.expires}
}

// less reports whether less of u's quota is used than of v's. The products fit 64 bits: bucket.MaxRequests.
func (u usage) less(v usage) bool {
	a, b := uint64(u.remaining)*uint64(v.capacity), uint64(v.remaining)*uint64(u.capacity)
	return a > b || a == b && u.expires < v.expires
}
