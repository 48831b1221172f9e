package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const (
	// maxShards is 64 because takeAll collects the shards of a request in one word.
	maxShards = 64
	// minShard is the least number of buckets for which a shard is worthwhile. Keys spread unevenly: the fuller shards of
	// a store would evict long before the others are full.
	minShard = 1024
	// mostBuckets keeps the numbers of slots within 32 bits.
	mostBuckets = 1 << 30
)

// Config has the settings of a store. The zero value is a store with the defaults and without a snapshot.
type Config struct {
	// MaxBuckets is the most buckets kept. A bucket needs some 90 bytes, whatever its key; a log of several requests needs
	// more, and with a snapshot the key does. Default 1,000,000. In a full store, a new bucket replaces a bucket of the
	// rule (Take.Rule) with the most buckets. So a rule loses none while it has less than its equal share. Each of up to
	// 64 shards does this by itself.
	MaxBuckets int
	// SweepInterval is the time in which every bucket is checked once and dropped if it has expired. Default 10 s.
	SweepInterval time.Duration
	// SnapshotPath is the file of the snapshot; "" for none. New loads buckets from it. Close saves them to it, also
	// every SnapshotInterval. A crash loses the charges since the last save. The file holds bucket keys, so only its
	// owner can read it. Each process needs a file of its own.
	SnapshotPath string
	// SnapshotInterval is the time between two saves. Default 1 minute.
	SnapshotInterval time.Duration
	// Clock returns the time in µs since 1970, and is safe for concurrent use. Default: the wall clock at New plus the
	// elapsed time, so that it never steps.
	Clock func() int64
	// Logger receives snapshots that could not be loaded or saved. Default: no log.
	Logger *slog.Logger
}

// Store is a ratelimit.Store in memory. All methods are safe for concurrent use.
type Store struct {
	shards []shard
	shift  uint // a hash >> shift is the number of its shard
	seeds  seeds
	clock  func() int64
	logger *slog.Logger
	// rooms holds a *room for each call of Take. In a shard, it would move between the caches of processors.
	rooms sync.Pool

	snapshotPath               string
	snapshots, failedSnapshots atomic.Uint64
	background                 sync.WaitGroup
	close                      func() error // once
}

// New returns a store with the buckets of the snapshot, if one is configured and exists. A damaged snapshot is renamed
// to SnapshotPath.corrupt-<time> and reported to the Logger. The store then starts empty: a limiter without its counts
// is better than none. Wrong settings, a directory without write access and an unreadable snapshot are errors.
func New(cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("memory store: %w", err)
	}
	s := &Store{clock: cfg.Clock, logger: cfg.Logger, snapshotPath: cfg.SnapshotPath, seeds: newSeeds()}
	s.rooms.New = func() any { return new(room) }
	s.makeShards(cfg.MaxBuckets)
	if s.snapshotPath != "" {
		if err := s.load(cfg.MaxBuckets); err != nil {
			return nil, fmt.Errorf("memory store: %w", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.close = sync.OnceValue(func() error {
		cancel()
		s.background.Wait()
		if s.snapshotPath == "" {
			return nil
		}
		if err := s.save(); err != nil {
			return fmt.Errorf("memory store: %w", err)
		}
		return nil
	})
	s.background.Go(func() { s.sweep(ctx, cfg.SweepInterval) })
	if s.snapshotPath != "" {
		s.background.Go(func() { s.saveEvery(ctx, cfg.SnapshotInterval) })
	}
	return s, nil
}

func (cfg Config) withDefaults() (Config, error) {
	var errs []error
	if cfg.MaxBuckets < 0 || cfg.MaxBuckets > mostBuckets {
		errs = append(errs, fmt.Errorf("at most %d buckets: want 1 to %d", cfg.MaxBuckets, mostBuckets))
	}
	if cfg.SweepInterval < 0 {
		errs = append(errs, fmt.Errorf("a sweep interval of %v: want more than 0", cfg.SweepInterval))
	}
	if cfg.SnapshotInterval < 0 {
		errs = append(errs, fmt.Errorf("a snapshot interval of %v: want more than 0", cfg.SnapshotInterval))
	}
	cfg.MaxBuckets = cmp.Or(cfg.MaxBuckets, 1_000_000)
	cfg.SweepInterval = cmp.Or(cfg.SweepInterval, 10*time.Second)
	cfg.SnapshotInterval = cmp.Or(cfg.SnapshotInterval, time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = monotonic()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return cfg, errors.Join(errs...)
}

// monotonic returns a clock that starts with the wall clock but never steps with it.
func monotonic() func() int64 {
	start := time.Now()
	micros := start.UnixMicro()
	return func() int64 { return micros + time.Since(start).Microseconds() }
}

// makeShards makes the shards for a bound. Their capacities add up to it.
func (s *Store) makeShards(maxBuckets int) {
	n := 1
	for n < maxShards && maxBuckets/(2*n) >= minShard {
		n *= 2
	}
	s.shards = make([]shard, n)
	s.shift = uint(64 - bits.Len(uint(n-1)))
	for i := range s.shards {
		s.shards[i].capacity = maxBuckets / n
		if i < maxBuckets%n {
			s.shards[i].capacity++
		}
		if s.snapshotPath != "" {
			s.shards[i].table.keys = new(chunks[string])
		}
	}
}

// room is memory for the buckets of a request, and their logs.
type room struct {
	loaded []bucket.Loaded
	grants []bucket.Grant
}

// Start implements ratelimit.Store. It calls done before it returns.
func (s *Store) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	s.Take(ctx, requests, outcomes)
	done()
}

// Take decides the requests in place, one after the other; see ratelimit.Store. It waits only for other callers of
// Take, so it also decides when ctx is done, and Err is always nil.
func (s *Store) Take(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome) {
	room := s.rooms.Get().(*room)
	for i := 0; i < len(requests); {
		r := &requests[i]
		room.loaded = slices.Grow(room.loaded[:0], len(r.Takes))[:len(r.Takes)]
		if len(r.Takes) == 1 {
			i += s.takeRun(requests[i:], outcomes[i:], room)
		} else {
			s.takeAll(r, &outcomes[i], room)
			i++
		}
	}
	s.rooms.Put(room)
}

// mostRun bounds how long takeRun holds a lock, to some µs.
const mostRun = 64

// takeRun is takeAll for requests with one take, the usual case. It decides the first request, and those that follow it
// and have the same key: in a batch for a hot key, all take one lock. It returns their number.
func (s *Store) takeRun(requests []bucket.Request, outcomes []bucket.Outcome, room *room) (n int) {
	key, loaded := requests[0].Takes[0].Key, room.loaded
	d := s.seeds.digest(key)
	sh := s.shardOf(&d)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	// Read the clock under the lock. A time read before could be old when the lock is acquired. A bucket set back by more
	// than bucket.MaxClockStep would refill twice.
	now := s.clock()
	for {
		r, o := &requests[n], &outcomes[n]
		room.grants = room.grants[:0]
		slot := sh.load(&d, &loaded[0].State, &room.grants)
		r.Decide(now, loaded, o)
		if loaded[0].Changed {
			sh.keep(&r.Takes[0], &d, slot, &loaded[0], o.Decisions[0].ResetAfter, now)
		}
		n++
		if n == min(len(requests), mostRun) || len(requests[n].Takes) != 1 || requests[n].Takes[0].Key != key {
			return n
		}
	}
}

// takeAll locks the shards of all takes in their order, so that two requests never deadlock.
func (s *Store) takeAll(r *bucket.Request, o *bucket.Outcome, room *room) {
	var few [16]digest
	digests, shards, loaded := few[:0], shardSet(0), room.loaded
	room.grants = room.grants[:0]
	for i := range r.Takes {
		digests = append(digests, s.seeds.digest(r.Takes[i].Key))
		shards |= 1 << (digests[i].hash() >> s.shift)
	}
	s.lock(shards)
	defer s.unlock(shards)
	now := s.clock()
	for i := range loaded {
		s.shardOf(&digests[i]).load(&digests[i], &loaded[i].State, &room.grants)
	}
	r.Decide(now, loaded, o)
	for i := range loaded {
		if loaded[i].Changed {
			sh := s.shardOf(&digests[i])
			slot := sh.table.find(&digests[i]) // again: an earlier take of this loop may have evicted the bucket
			sh.keep(&r.Takes[i], &digests[i], slot, &loaded[i], o.Decisions[i].ResetAfter, now)
		}
	}
}

func (s *Store) shardOf(d *digest) *shard { return &s.shards[d.hash()>>s.shift] }

// shardSet is a set of numbers of shards.
type shardSet uint64

func (s *Store) lock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(uint64(set))].mu.Lock()
	}
}

func (s *Store) unlock(set shardSet) {
	for ; set != 0; set &= set - 1 {
		s.shards[bits.TrailingZeros64(uint64(set))].mu.Unlock()
	}
}

// Stats are figures for metrics. The counters count since New.
type Stats struct {
	// Buckets is the number of buckets now.
	Buckets int64
	// Evicted counts buckets that were dropped for a new one before they expired.
	Evicted uint64
	// Expired counts buckets that were dropped because their full quota was available again.
	Expired uint64
	// Snapshots and FailedSnapshots count the saves that succeeded and those that failed.
	Snapshots, FailedSnapshots uint64
}

// Stats returns the current figures. It takes no locks.
func (s *Store) Stats() Stats {
	stats := Stats{Snapshots: s.snapshots.Load(), FailedSnapshots: s.failedSnapshots.Load()}
	for i := range s.shards {
		stats.Buckets += s.shards[i].live.Load()
		stats.Evicted += s.shards[i].evicted.Load()
		stats.Expired += s.shards[i].expired.Load()
	}
	return stats
}

// Close ends all background work and saves a last snapshot, if one is configured. It returns the error of that save.
// Take still decides after Close, but its charges are not saved. A second Close does nothing and returns the same
// error.
func (s *Store) Close() error { return s.close() }
