package nearstore_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// perSecond returns a limit that refills while a test runs. With a calendar it does so once, after 2 s.
func perSecond(a bucket.Algorithm, n int64) bucket.Limit {
	l := bucket.Limit{Algorithm: a, Requests: n, Burst: n, Window: 1_000_000}
	if a == bucket.CalendarWindow { // the clock begins at 0:00 in UTC
		l.Window, l.Calendar = 86_400_000_000, bucket.NewCalendar("day", time.FixedZone("here", -2))
	}
	return l
}

// admission is a request that was admitted, at a time of Redis's clock.
type admission struct{ at, cost int64 }

// check fails unless a bucket that was charged at the time of each request would have admitted them all.
func check(t *testing.T, l bucket.Limit, all []admission) {
	t.Helper()
	slices.SortStableFunc(all, func(a, b admission) int { return cmp.Compare(a.at, b.at) })
	var state bucket.State
	for i, a := range all {
		if !state.Fits(&l, a.at, a.cost) {
			t.Errorf("request %d of %d at %d is over the limit of %d: %d used", i, len(all), a.at, l.Requests,
				state.Used(&l, a.at))
			return
		}
		state.Charge(&l, a.at, a.cost)
	}
}

// TestLeasesAreExact runs up to four replicas with leases for hot keys. Calls are slow or lost, and replicas die with
// what is left of their leases. A bucket that was charged when each request was admitted would have admitted them all.
func TestLeasesAreExact(t *testing.T) {
	t.Parallel()
	used := map[bucket.Algorithm]uint64{}
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		if l.Algorithm.HasGrants() { // Check refuses it
			return
		}
		replicas := 1 + random.IntN(4)
		l = perSecond(l.Algorithm, 15+random.Int64N(60))
		lease := uint64(1 + random.Int64N(5))
		s := newServer()
		cfg := nearstore.Config{DenialCache: random.IntN(2) == 0}
		var mu sync.Mutex
		var all []admission
		var callers sync.WaitGroup
		for range replicas {
			own := rand.New(rand.NewPCG(random.Uint64(), 0))
			callers.Go(func() {
				r := newReplica(t, s, cfg)
				for range 150 {
					pause := time.Duration(own.IntN(5_000)) * time.Microsecond
					if own.IntN(20) == 0 { // long enough that a window ends, or a bucket drains
						pause = time.Duration(own.IntN(1_500)) * time.Millisecond
					}
					time.Sleep(pause)
					if own.IntN(40) == 0 { // kill -9
						mu.Lock()
						used[l.Algorithm] += r.Stats().LeaseUsed
						mu.Unlock()
						_ = r.Close()
						r = newReplica(t, s, cfg)
					}
					f := fate{reach: time.Duration(own.IntN(2_000)) * time.Microsecond}
					if own.IntN(10) == 0 {
						f = randomFate(own)
					}
					r.link.set(f)
					cost := int64(1 + own.IntN(2))
					take := bucket.Take{Key: "k", Limit: l, Cost: uint64(cost), Lease: lease}
					requests, outcomes := []bucket.Request{{Takes: []bucket.Take{take}}}, make([]bucket.Outcome, 1)
					ratelimit.Take(t.Context(), r, requests, outcomes)
					if o := &outcomes[0]; o.Err == nil && o.Allowed {
						at := s.clock()
						if o.Origin == bucket.FromStore {
							at = o.Seen[0].Clock
						}
						mu.Lock()
						all = append(all, admission{at, cost})
						mu.Unlock()
					}
				}
				mu.Lock()
				used[l.Algorithm] += r.Stats().LeaseUsed
				mu.Unlock()
				_ = r.Close()
			})
		}
		callers.Wait()
		time.Sleep(time.Second) // for calls whose callers have given up
		check(t, l, all)
	})
	for a, units := range used {
		if units == 0 {
			t.Errorf("%s: no lease was used", a)
		}
	}
}

// TestLeaseEndsWithItsWindow is trap T6: units that were charged at the end of a window do not pass in the next one in
// addition to its limit.
func TestLeaseEndsWithItsWindow(t *testing.T) {
	for _, algorithm := range []bucket.Algorithm{bucket.FixedWindow, bucket.CalendarWindow, bucket.SlidingWindowCounter} {
		t.Run(fmt.Sprint(uint8(algorithm)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r := newReplica(t, s, nearstore.Config{})
				r.link.usual = fate{}
				l := perSecond(algorithm, 100)
				take := bucket.Take{Key: "k", Limit: l, Cost: 1, Lease: 10}
				time.Sleep(time.Until(time.Now().Truncate(time.Second).Add(1980 * time.Millisecond)))
				for range 15 {
					r.ask(take)
				}
				if got := r.Stats(); got.LeaseCharged-got.LeaseUsed < 5 {
					t.Fatalf("%+v, want units left of a lease", got)
				}
				time.Sleep(time.Second) // the same place in the next window
				var all []admission
				for range 200 {
					if r.ask(take).Allowed {
						all = append(all, admission{s.clock(), 1})
					}
				}
				if len(all) > 100 {
					t.Errorf("%d of 100 admitted in the next window", len(all))
				}
				_ = r.Close()
			})
		})
	}
}

// TestLeaseSparesCalls shows what leases are for: a hot key asks Redis once for each chunk, and the decisions are those
// of a bucket that is asked each time.
func TestLeaseSparesCalls(t *testing.T) {
	for _, algorithm := range []bucket.Algorithm{bucket.FixedWindow, bucket.SlidingWindowCounter} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r := newReplica(t, s, nearstore.Config{})
				l := perDay(algorithm, 1100)
				fromStore, fromLease := 0, 0
				for i := range int64(1100) {
					o := r.ask(bucket.Take{Key: "k", Limit: l, Cost: 1, Lease: 10})
					if d := o.Decisions[0]; !o.Allowed || d.Remaining != 1099-i {
						t.Fatalf("request %d: allowed %t, %d left", i, o.Allowed, d.Remaining)
					}
					switch o.Origin {
					case bucket.FromStore:
						fromStore++
					case bucket.FromLease:
						fromLease++
					}
				}
				if fromStore > 110 || fromStore+fromLease != 1100 {
					t.Errorf("%d decided by Redis, %d from leases", fromStore, fromLease)
				}
				if o := r.ask(bucket.Take{Key: "k", Limit: l, Cost: 1, Lease: 10}); o.Allowed {
					t.Error("1101 of 1100 admitted")
				}
				_ = r.Close()
			})
		})
	}
}

// TestLeaseOnlyForAllTakes asks for a leased bucket together with another one. Such requests are decided by Redis, and
// no unit is charged for them in advance.
func TestLeaseOnlyForAllTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{})
		l := perDay(bucket.FixedWindow, 100)
		leased := bucket.Take{Key: "hot", Limit: l, Cost: 1, Lease: 5}
		for range 30 {
			if o := r.ask(leased, bucket.Take{Key: "other", Limit: l, Cost: 1}); o.Origin != bucket.FromStore {
				t.Fatalf("decided by %d", o.Origin)
			}
		}
		if got := r.Stats(); got.LeaseCharged != 0 || s.used("hot", l) != 30 {
			t.Errorf("%+v, %d used", got, s.used("hot", l))
		}
		for range 20 {
			r.ask(leased, bucket.Take{Key: "both", Limit: l, Cost: 1, Lease: 5})
		}
		if got := r.Stats(); got.LeaseUsed == 0 {
			t.Errorf("%+v, want leases where all takes have one", got)
		}
		_ = r.Close()
	})
}

// TestLeaseOnlyOfHotKeys asks for a bucket so rarely that its window ends, or that it leaks, before a chunk is used. No
// unit is charged in advance. When clients ask more often, the bucket gets leases.
func TestLeaseOnlyOfHotKeys(t *testing.T) {
	for _, algorithm := range []bucket.Algorithm{
		bucket.FixedWindow, bucket.SlidingWindowCounter, bucket.TokenBucket, bucket.LeakyBucket,
	} {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r := newReplica(t, s, nearstore.Config{})
				take := bucket.Take{Key: "k", Limit: perSecond(algorithm, 100), Cost: 1, Lease: 10}
				for range 60 {
					r.ask(take)
					time.Sleep(200 * time.Millisecond)
				}
				if got := r.Stats().LeaseCharged; got != 0 {
					t.Errorf("%d units are charged in advance, want none", got)
				}
				for range 100 {
					r.ask(take)
				}
				if r.Stats().LeaseCharged == 0 {
					t.Error("no unit is charged in advance for a key that is hot")
				}
				_ = r.Close()
			})
		})
	}
}

// TestLeaseOfAnotherLimit lowers a limit: units that were charged under the previous one do not pass.
func TestLeaseOfAnotherLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: true})
		take := bucket.Take{Key: "k", Limit: perDay(bucket.FixedWindow, 100), Cost: 1, Lease: 10}
		for range 15 {
			r.ask(take)
		}
		if got := r.Stats(); got.LeaseUsed == 0 || got.LeaseUsed == got.LeaseCharged {
			t.Fatalf("%+v, want a lease with units left", got)
		}
		for _, requests := range []int64{12, 0} {
			take.Limit.Requests = requests
			if o := r.ask(take); o.Allowed {
				t.Errorf("admitted under a limit of %d", requests)
			}
		}
		_ = r.Close()
	})
}

// TestLostChunks loses each answer to a request for a chunk. Redis may have charged it, so the replica does not ask
// again until it has admitted as many units.
func TestLostChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{})
		l := perDay(bucket.FixedWindow, 1000)
		take := bucket.Take{Key: "k", Limit: l, Cost: 1, Lease: 10}
		r.take("warm", l, 1)
		for range 10 {
			r.ask(take)
		}
		r.link.set(fate{unheard: true})
		for range 10 {
			ratelimit.Take(t.Context(), r, []bucket.Request{{Takes: []bucket.Take{take}}}, make([]bucket.Outcome, 1))
		}
		if used := s.used("k", l); used > 10+10+10 {
			t.Errorf("Redis has charged %d for 20 requests", used)
		}
		time.Sleep(time.Second)
		_ = r.Close()
	})
}
