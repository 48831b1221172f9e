package table

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Default is the bound of a table for which none is set.
	Default = 1_000_000
	// mostBuckets keeps the numbers of slots within 32 bits.
	mostBuckets = 1 << 30
	// maxShards is 64 because a Set has a bit for each.
	maxShards = 64
	// minShard is the least number of buckets for which a shard is worthwhile. Keys spread unevenly: the fuller shards of
	// a table would evict long before the others are full.
	minShard = 1024
)

// Table is buckets in memory. The buckets of a shard may be used only while it is locked. N is a note beside each
// bucket, without pointers, which the garbage collector would read. E is an extra, which may have pointers.
type Table[N, E any] struct {
	shards []Shard[N, E]
	shift  uint            // a hash >> shift is the number of its shard
	seeds  [2]maphash.Seed // they never leave the process
	holds  *atomic.Int64   // live, of all buckets

	fullHolds atomic.Uint64
}

// New returns a table of at most that many buckets, 0 for Default. The bounds of its shards add up to it.
func New[N, E any](most int) (*Table[N, E], error) {
	if most < 0 || most > mostBuckets {
		return nil, fmt.Errorf("at most %d buckets: want 1 to %d", most, mostBuckets)
	}
	if most == 0 {
		most = Default
	}
	n := 1
	for n < maxShards && most/(2*n) >= minShard {
		n *= 2
	}
	t := &Table[N, E]{
		shards: make([]Shard[N, E], n), shift: uint(64 - bits.Len(uint(n-1))), holds: new(atomic.Int64),
	}
	t.seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	for i := range t.shards {
		t.shards[i].holds, t.shards[i].capacity = t.holds, most/n
		if i < most%n {
			t.shards[i].capacity++
		}
	}
	return t, nil
}

// Digest returns the digest of a key.
func (t *Table[N, E]) Digest(key string) (d Digest) {
	binary.LittleEndian.PutUint64(d[:], maphash.String(t.seeds[0], key))
	binary.LittleEndian.PutUint64(d[8:], maphash.String(t.seeds[1], key))
	return d
}

// Shards returns all shards. The buckets of one rule are in all of them.
func (t *Table[N, E]) Shards() []Shard[N, E] { return t.shards }

// Holds returns the number of live holds of all buckets.
func (t *Table[N, E]) Holds() int64 { return t.holds.Load() }

// Full reports whether more holds would be above a bound, and counts that. It is for takes that reserve.
func (t *Table[N, E]) Full(more int, bound int64) bool {
	full := t.Holds()+int64(more) > bound
	if full {
		t.fullHolds.Add(1)
	}
	return full
}

// Shard returns the shard of a bucket.
func (t *Table[N, E]) Shard(d *Digest) *Shard[N, E] { return &t.shards[d.hash()>>t.shift] }

// Set is a set of shards.
type Set uint64

// Add adds the shard of a bucket to a set.
func (t *Table[N, E]) Add(set *Set, d *Digest) { *set |= 1 << (d.hash() >> t.shift) }

// Lock locks the shards of a set in their order, so that two callers never deadlock.
func (t *Table[N, E]) Lock(set Set) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(uint64(set))].Lock()
	}
}

// Unlock unlocks the shards of a set.
func (t *Table[N, E]) Unlock(set Set) {
	for ; set != 0; set &= set - 1 {
		t.shards[bits.TrailingZeros64(uint64(set))].Unlock()
	}
}

// Stats are figures for metrics. The counters count since New.
type Stats struct {
	// Buckets is the number of buckets now.
	Buckets int64
	// Evicted counts buckets that were dropped for a new one before they expired.
	Evicted uint64
	// EvictedHolds counts those of them that had live holds.
	EvictedHolds uint64
	// Expired counts buckets that were dropped because their full quota was available again.
	Expired uint64
	// Holds is the number of live holds now, with those that have expired and that no request has met since.
	Holds int64
	// FullHolds counts what Full has reported.
	FullHolds uint64
}

// Stats returns the current figures. It takes no locks.
func (t *Table[N, E]) Stats() (stats Stats) {
	for i := range t.shards {
		stats.Buckets += t.shards[i].used.Load()
		stats.Evicted += t.shards[i].evicted.Load()
		stats.EvictedHolds += t.shards[i].evictedHolds.Load()
		stats.Expired += t.shards[i].expired.Load()
	}
	stats.Holds, stats.FullHolds = t.Holds(), t.fullHolds.Load()
	return stats
}

// SweepInterval is the usual time in which every bucket is checked once.
const SweepInterval = 10 * time.Second

// Sweep drops expired buckets by a clock in µs until ctx is done. Each shard has its turn once in the interval.
func (t *Table[N, E]) Sweep(ctx context.Context, interval time.Duration, clock func() int64) {
	turns := time.NewTicker(max(interval/time.Duration(len(t.shards)), time.Millisecond))
	defer turns.Stop()
	for next := 0; ; next = (next + 1) % len(t.shards) {
		select {
		case <-ctx.Done():
			return
		case <-turns.C:
		}
		sh, now := &t.shards[next], clock()
		sh.Each(func(slot uint32) { sh.Expire(slot, now) })
	}
}

// EachExtra calls f for each extra, with the rule of its bucket. It locks a few slots at a time.
func (t *Table[N, E]) EachExtra(f func(rule uint64, extra E)) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.Each(func(slot uint32) {
			if n := sh.at(slot).extra; n != 0 {
				f(sh.Rule(slot), *sh.extras.at(n))
			}
		})
	}
}
