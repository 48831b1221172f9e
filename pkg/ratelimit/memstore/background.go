package memstore

import (
	"context"
	"log/slog"
	"time"
)

// bite is how many slots are looked at under one hold of a lock, by the sweep and by a snapshot: some tens of µs.
const bite = 256

// every calls f after each interval until ctx is done.
func every(ctx context.Context, interval time.Duration, f func()) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f()
		}
	}
}

// sweep looks at one shard after the other, so that all have had their turn within the interval, until ctx is done.
func (s *Store) sweep(ctx context.Context, interval time.Duration) {
	next := 0
	every(ctx, max(interval/time.Duration(len(s.shards)), time.Millisecond), func() {
		s.shards[next].sweep(s.clock())
		next = (next + 1) % len(s.shards)
	})
}

// sweep drops what has expired, a bite at a time.
func (sh *shard) sweep(now int64) {
	for from, more := uint32(0), true; more; from += bite {
		more = sh.sweepBite(from, now)
	}
}

// sweepBite drops what has expired in the bite from a slot on, and reports whether there are slots behind it.
func (sh *shard) sweepBite(from uint32, now int64) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	end := min(from+bite, sh.table.slots)
	for slot := from; slot < end; slot++ {
		if e := sh.table.at(slot); e.expires != 0 && expired(e.expires, now) {
			sh.remove(slot)
			sh.expired.Add(1)
		}
	}
	return end < sh.table.slots
}

// saveEvery saves a snapshot every interval until ctx is done.
func (s *Store) saveEvery(ctx context.Context, interval time.Duration) {
	every(ctx, interval, func() {
		if err := s.save(); err != nil {
			s.logger.ErrorContext(ctx, "the snapshot of the buckets was not saved; the last one is kept", slog.Any("error", err))
		}
	})
}
