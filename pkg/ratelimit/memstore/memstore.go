package memstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// buckets is the table of a store.
type (
	buckets = table.Table[struct{}, extra]
	shard   = table.Shard[struct{}, extra]
)

// extra is what few buckets have: the key, which only a snapshot needs, and live holds.
type extra struct {
	key   string
	holds *bucket.Holds
}

// Config has the settings of a store. The zero value is a store with the defaults and without a snapshot.
type Config struct {
	// MaxBuckets is the most buckets kept. A bucket needs some 90 bytes, whatever its key; a log of several requests needs
	// more, and with a snapshot the key does. Default 1,000,000. In a full store, a new bucket replaces a bucket of the
	// rule (Take.Rule) with the most buckets. So a rule loses none while it has less than its equal share. Each of up to
	// 64 shards does this by itself.
	MaxBuckets int
	// MaxHolds is the most live holds of all buckets. A hold needs up to 64 bytes, the first one of a bucket some 130. In
	// a store that has as many, no more can be reserved. Requests that run at the same time can exceed it by a few.
	// Default 1,000,000.
	MaxHolds int
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
	table    *buckets
	maxHolds int64
	keys     bool // the table has the keys of buckets
	clock    func() int64
	logger   *slog.Logger
	// rooms holds a *room for each call of Start. In a shard, it would move between the caches of processors.
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
	t, err := table.New[struct{}, extra](cfg.MaxBuckets)
	if cfg.MaxHolds < 0 {
		err = errors.Join(err, fmt.Errorf("at most %d holds: want 1 or more", cfg.MaxHolds))
	}
	if cfg.SnapshotInterval < 0 {
		err = errors.Join(err, fmt.Errorf("a snapshot interval of %v: want more than 0", cfg.SnapshotInterval))
	}
	if err != nil {
		return nil, fmt.Errorf("memory store: %w", err)
	}
	cfg.SnapshotInterval = cmp.Or(cfg.SnapshotInterval, time.Minute)
	if cfg.Clock == nil {
		cfg.Clock = monotonic()
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{
		table: t, maxHolds: int64(cmp.Or(cfg.MaxHolds, defaultHolds)), keys: cfg.SnapshotPath != "", clock: cfg.Clock,
		logger: cfg.Logger, snapshotPath: cfg.SnapshotPath,
	}
	s.rooms.New = func() any { return new(room) }
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
	s.background.Go(func() { s.table.Sweep(ctx, table.SweepInterval, cfg.Clock) })
	s.background.Go(func() { s.watchHolds(ctx) })
	if s.snapshotPath != "" {
		s.background.Go(func() { s.saveEvery(ctx, cfg.SnapshotInterval) })
	}
	return s, nil
}

// monotonic returns a clock that starts with the wall clock but never steps with it.
func monotonic() func() int64 {
	start := time.Now()
	micros := start.UnixMicro()
	return func() int64 { return micros + time.Since(start).Microseconds() }
}

// room is memory for the buckets of a request, and their logs.
type room struct {
	loaded []bucket.Loaded
	grants []bucket.Grant
}

// Start implements ratelimit.Store. It decides the requests one after the other, and calls done before it returns. It
// waits only for other callers of Start, so it also decides when the context is done, and Err is always nil.
func (s *Store) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
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
	done()
}

// mostRun bounds how long takeRun holds a lock, to some µs.
const mostRun = 64

// takeRun is takeAll for requests with one take, the usual case. It decides the first request, and those that follow it
// and have the same key: in a batch for a hot key, all take one lock. It returns their number.
func (s *Store) takeRun(requests []bucket.Request, outcomes []bucket.Outcome, room *room) (n int) {
	key, loaded := requests[0].Takes[0].Key, room.loaded
	d := s.table.Digest(key)
	sh := s.table.Shard(&d)
	sh.Lock()
	defer sh.Unlock()
	// Read the clock under the lock. A time read before could be old when the lock is acquired. A bucket set back by more
	// than bucket.MaxClockStep would refill twice.
	now := s.clock()
	for {
		r, o := &requests[n], &outcomes[n]
		room.grants = room.grants[:0]
		slot := sh.Load(&d, &loaded[0].State, &room.grants)
		if r.Takes[0].Hold != nil {
			s.loadHolds(sh, slot, &r.Takes[0], &loaded[0], new(int))
		}
		if r.Dry {
			r.DecideDry(now, loaded, o)
		} else if r.Decide(now, loaded, o); loaded[0].Changed {
			s.keep(sh, &r.Takes[0], &d, slot, &loaded[0].State, now, expiry(r, &o.Decisions[0], now))
		}
		n++
		if n == min(len(requests), mostRun) || len(requests[n].Takes) != 1 || requests[n].Takes[0].Key != key {
			return n
		}
	}
}

// takeAll locks the shards of all takes.
func (s *Store) takeAll(r *bucket.Request, o *bucket.Outcome, room *room) {
	var few [16]table.Digest
	digests, shards, takes := few[:0], table.Set(0), r.Takes
	loaded := room.loaded[:len(takes)] // equal lengths spare the loops their bounds checks
	room.grants = room.grants[:0]
	for i := range takes {
		digests = append(digests, s.table.Digest(takes[i].Key))
		s.table.Add(&shards, &digests[i])
	}
	digests = digests[:len(takes)]
	s.table.Lock(shards)
	defer s.table.Unlock(shards)
	now, reserves := s.clock(), 0
	for i := range takes {
		d, b := &digests[i], &loaded[i]
		sh := s.table.Shard(d)
		slot := sh.Load(d, &b.State, &room.grants)
		if takes[i].Hold != nil {
			s.loadHolds(sh, slot, &takes[i], b, &reserves)
		}
	}
	if r.Dry {
		r.DecideDry(now, loaded, o)
		return
	}
	r.Decide(now, loaded, o)
	decisions := o.Decisions[:len(takes)]
	for i := range takes {
		if b, d := &loaded[i], &digests[i]; b.Changed {
			sh := s.table.Shard(d)
			slot := sh.Find(d) // again: an earlier take of this loop may have evicted the bucket
			s.keep(sh, &takes[i], d, slot, &b.State, now, expiry(r, &decisions[i], now))
		}
	}
}

// expiry returns when the bucket of a take can be dropped. A request with a time of its own expires by the clock.
func expiry(r *bucket.Request, d *bucket.Decision, now int64) table.Expiry {
	return table.ExpiryAt(now + max(d.ResetAfter, d.ExpireAt-cmp.Or(r.At, now)))
}

// keep stores the changed bucket of a decided take, or drops it if it is empty.
func (s *Store) keep(
	sh *shard, t *bucket.Take, d *table.Digest, slot uint32, state *bucket.State, now int64, expires table.Expiry,
) {
	if state.Empty() && (slot == table.NoSlot || t.Hold != nil || sh.Holds(slot) == 0) {
		if slot != table.NoSlot {
			sh.Remove(slot)
		}
		return
	}
	limit := &t.Limit
	if t.Hold != nil && state.Rate != 0 && state.Rate != limit.Requests { // only holds have changed, not the older debt
		old := *limit
		old.Requests, old.Burst, limit = state.Rate, min(old.Burst, state.Rate), &old
		if slot != table.NoSlot {
			limit = sh.Limit(slot)
		}
	}
	if slot == table.NoSlot {
		slot = sh.Add(d, t.Rule, table.Clock{Now: now})
		if s.keys {
			sh.SetExtra(slot, extra{key: strings.Clone(t.Key)})
		}
	}
	if t.Hold != nil { // else the bucket keeps its holds: its rule has lost `hold`, perhaps not for long
		keepHolds(sh, slot, state.Holds)
	}
	sh.Set(slot, limit, state, expires)
}

// Stats are figures for metrics. The counters count since New.
type Stats struct {
	table.Stats
	// Snapshots and FailedSnapshots count the saves that succeeded and those that failed.
	Snapshots, FailedSnapshots uint64
}

// Stats returns the current figures. It takes no locks.
func (s *Store) Stats() Stats {
	return Stats{
		Stats:     s.table.Stats(),
		Snapshots: s.snapshots.Load(), FailedSnapshots: s.failedSnapshots.Load(),
	}
}

// Close ends all background work, and saves a last snapshot if one is configured. It returns the error of that save.
// Start still decides after Close, but its charges are not saved. A second Close only returns the same error.
func (s *Store) Close() error { return s.close() }
