package memstore

import (
	"context"
	"log/slog"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
)

// lockedSlots is how many slots the sweep and a snapshot read under one lock: some tens of µs (BenchmarkHolds).
const lockedSlots = 128

// sweep sweeps one shard after the other until ctx is done. Each shard has its turn once in the interval.
func (s *Store) sweep(ctx context.Context, interval time.Duration) {
	next := 0
	poll.Every(ctx, max(interval/time.Duration(len(s.shards)), time.Millisecond), func() {
		s.shards[next].sweep(s.clock())
		next = (next + 1) % len(s.shards)
	})
}

// sweep drops expired buckets. It holds the lock for lockedSlots at a time.
func (sh *shard) sweep(now int64) {
	for from, more := uint32(0), true; more; from += lockedSlots {
		more = sh.sweepFrom(from, now)
	}
}

// sweepFrom drops the expired buckets in the slots from one on, under one lock. It reports whether slots follow.
func (sh *shard) sweepFrom(from uint32, now int64) (more bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	end := min(from+lockedSlots, sh.table.slots)
	for slot := from; slot < end; slot++ {
		if e := sh.table.at(slot); e.expires != 0 && expired(e.expires, now) {
			sh.remove(slot)
			sh.expired.Add(1)
		}
	}
	return end < sh.table.slots
}

// saveEvery saves a snapshot after every interval until ctx is done.
func (s *Store) saveEvery(ctx context.Context, interval time.Duration) {
	poll.Every(ctx, interval, func() {
		if err := s.save(); err != nil {
			s.logger.ErrorContext(ctx, "the snapshot of the buckets was not saved; the last one is kept", slog.Any("error", err))
		}
	})
}
