package nearstore

import (
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// counts count since New.
type counts struct {
	admitted, uncertain, caughtUp, minted atomic.Uint64
	floors, losses, unreadable            atomic.Uint64
	leaseCharged, leaseUsed               atomic.Uint64
}

// over counts what is over the capacity after Redis has taken over units that were admitted here.
func (c *counts) over(a *sentTake, w *takeAnswer, units int64) {
	if over := w.State.Used(&a.take.Limit, w.Clock) + w.holds.Units() - a.capacity(); over > 0 {
		c.minted.Add(uint64(min(over, units)))
	}
}

// Stats are figures for metrics. All but Memory, Replicas and Owing count since New.
type Stats struct {
	// Memory are the figures of the buckets that are remembered.
	Memory table.Stats
	// Replicas is that of SetReplicas.
	Replicas int64
	// Admitted counts units that were charged here. CaughtUp counts those that Redis has charged since, and Uncertain
	// those that Redis may have charged or not, which are never charged again.
	Admitted, CaughtUp, Uncertain uint64
	// Minted counts units of catch-ups and holds that were over the capacity of their bucket when Redis took them over.
	Minted uint64
	// Owing is the number of buckets that wait for their catch-up now.
	Owing int
	// Floors counts takes that were sent with a floor, Losses the answers that proved a loss of state.
	Floors, Losses uint64
	// Unreadable counts states in answers that were ignored.
	Unreadable uint64
	// LeaseCharged counts the units that Redis has charged for leases in advance, and LeaseUsed those that were used.
	LeaseCharged, LeaseUsed uint64
}

// Stats returns the current figures.
func (s *Store) Stats() Stats {
	c := &s.counts
	return Stats{
		Memory: s.table.Stats(), Replicas: s.replicas.Load(),
		Admitted: c.admitted.Load(), CaughtUp: c.caughtUp.Load(), Uncertain: c.uncertain.Load(), Minted: c.minted.Load(),
		Owing: int(s.debts.queued.Load()), Floors: c.floors.Load(), Losses: c.losses.Load(), Unreadable: c.unreadable.Load(),
		LeaseCharged: c.leaseCharged.Load(), LeaseUsed: c.leaseUsed.Load(),
	}
}
