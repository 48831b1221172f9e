package service

import "github.com/extauthz/extauthz/pkg/ratelimit/table"

// collectKnown sends what is done with the last known states of the buckets in Redis. It returns the figures of the
// memory that has them.
func (m *metrics) collectKnown(to samples) table.Stats {
	s := m.stores.known.Stats()
	units := to.counter("fallback_units_total",
		"Units that on_store_error: local has admitted, by what became of them: admitted (all), caught_up (Redis has "+
			"charged them since), uncertain (Redis may have charged them, so they are not caught up), minted (caught up, "+
			"but over the limit by then).", "kind")
	units(s.Admitted, "admitted")
	units(s.CaughtUp, "caught_up")
	units(s.Uncertain, "uncertain")
	units(s.Minted, "minted")
	to.gauge("fallback_owing_buckets",
		"Buckets whose units were admitted without Redis and wait until Redis charges them.")(float64(s.Owing))
	leased := to.counter("lease_units_total",
		"Units of limits with a lease, by what became of them: charged (Redis has charged them in advance), used (they have "+
			"passed without Redis). The rest is held, or stays charged until its window ends or its bucket has drained.", "kind")
	leased(s.LeaseCharged, "charged")
	leased(s.LeaseUsed, "used")
	to.counter("store_floors_total",
		"Takes that carried the last known state of their bucket, because Redis may have lost it.")(s.Floors)
	to.counter("store_losses_total", "Answers of Redis that showed less than was known of a bucket.")(s.Losses)
	to.counter("store_unreadable_states_total", "States in answers of Redis that were ignored.")(s.Unreadable)
	return s.Memory
}
