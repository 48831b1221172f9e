package memstore

import (
	"context"
	"log/slog"
	"math"
	"time"

	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// defaultHolds is the default of Config.MaxHolds.
const defaultHolds = 1_000_000

// loadHolds reads the live holds of the bucket of a take, and adds its reserves to those of its request.
func (s *Store) loadHolds(sh *shard, slot uint32, t *bucket.Take, b *bucket.Loaded, reserves *int) {
	if slot != table.NoSlot {
		b.State.Holds = sh.Extra(slot).holds
	}
	if t.Reserves() {
		*reserves += len(t.Hold.Reserves)
		b.Full = s.table.Full(*reserves, s.maxHolds)
	}
}

// keepHolds stores the holds of the bucket in a slot.
func keepHolds(sh *shard, slot uint32, h *bucket.Holds) {
	number := h.Number()
	if number == 0 {
		h = nil
	}
	if x := sh.Extra(slot); x.holds != h {
		if x.holds = h; x == (extra{}) {
			sh.DropExtra(slot)
		} else {
			sh.SetExtra(slot, x)
		}
	}
	sh.SetHolds(slot, number)
}

// watchHolds ends holds that have expired in buckets that no request meets, while there is little room for more. It
// reports buckets that were evicted with live holds.
func (s *Store) watchHolds(ctx context.Context) {
	reported, next := uint64(0), int64(math.MinInt64)
	poll.Every(ctx, table.SweepInterval, func() {
		shards := s.table.Shards()
		for i := 0; i < len(shards) && s.table.Holds() > s.maxHolds/4*3; i++ {
			sh := &shards[i]
			sh.Each(func(slot uint32) {
				if sh.Holds(slot) > 0 {
					s.expireHolds(sh, slot)
				}
			})
		}
		now, evicted := s.clock(), s.table.Stats().EvictedHolds
		if evicted > reported && now >= next {
			s.logger.ErrorContext(ctx, "buckets with live holds were evicted, so what they held can be used twice: raise "+
				"MEMORY_MAX_BUCKETS (logged at most once a minute)", slog.Uint64("buckets", evicted-reported))
			reported, next = evicted, now+time.Minute.Microseconds()
		}
	})
}

// expireHolds ends the expired holds of a bucket.
func (s *Store) expireHolds(sh *shard, slot uint32) {
	var grants []bucket.Grant
	var o bucket.Outcome
	b := make([]bucket.Loaded, 1)
	sh.State(slot, &b[0].State, &grants)
	b[0].State.Holds = sh.Extra(slot).holds
	r := bucket.Request{Takes: []bucket.Take{{
		Limit: *sh.Limit(slot), Hold: &bucket.Hold{TTL: math.MaxInt64 / 2, Release: b[0].State.Holds.Release},
	}}}
	now := s.clock()
	if r.Decide(now, b, &o); b[0].Changed {
		s.keep(sh, &r.Takes[0], nil, slot, &b[0].State, now, expiry(&r, &o.Decisions[0], now))
	}
}

// LiveHolds returns the sums of the live holds by Take.Rule.
func (s *Store) LiveHolds() map[uint64]bucket.SomeHolds {
	sums, now := map[uint64]bucket.SomeHolds{}, s.clock()
	s.table.EachExtra(func(rule uint64, x extra) {
		if x.holds != nil {
			sums[rule] = sums[rule].Plus(x.holds.At(now))
		}
	})
	return sums
}
