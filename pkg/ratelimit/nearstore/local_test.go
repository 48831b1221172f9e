package nearstore_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestRefundOfUnknownOutcome loses the answer to a refund that Redis has given. Each unit is given back at most once.
func TestRefundOfUnknownOutcome(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r, l := newReplica(t, s, nearstore.Config{}), perDay(algorithm, 10)
				admitted := r.take("k", l, 10)
				r.link.set(fate{reach: time.Millisecond, unheard: true})
				r.ask(bucket.Take{Key: "k", Limit: l, Refund: 5})
				r.link.set(fate{refused: true})
				admitted += r.take("k", l, 10)
				r.link.set(fate{})
				time.Sleep(time.Minute)
				admitted += r.take("k", l, 20)
				if admitted > 15 {
					t.Errorf("%d admitted of 10, of which 5 were given back once", admitted)
				}
				_ = r.Close()
			})
		})
	}
}

// TestRefundOfUnitsOfAnOutage gives back what was admitted in the same outage. Redis is charged for the rest only.
func TestRefundOfUnitsOfAnOutage(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r, l := newReplica(t, s, nearstore.Config{}), perDay(algorithm, 1_000)
				r.SetReplicas(3)
				r.link.set(fate{refused: true})
				r.ask(bucket.Take{Key: "k", Limit: l, Cost: 100})
				r.ask(bucket.Take{Key: "k", Limit: l, Refund: 90})
				r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				r.take("k", l, 1)
				if used := s.used("k", l); used != 11 {
					t.Errorf("Redis has charged %d, want 100 − 90 + 1", used)
				}
				_ = r.Close()
			})
		})
	}
}

// TestClockStepIsNoRefill lets the clock of Redis step an hour before an outage. The replica has seen one of two
// buckets since, and the other one only before. Requests of both, and of one alone, refill neither.
func TestClockStepIsNoRefill(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(algorithm.String()+" "+step.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					r := newReplica(t, s, nearstore.Config{})
					l := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: 7_200_000_000}
					wide := perDay(algorithm, 1_000)
					r.take("old", wide, 1)
					s.step(step)
					r.take("new", l, 1)
					r.link.set(fate{refused: true})
					admitted := 1
					for range 30 {
						if r.ask(bucket.Take{Key: "new", Limit: l, Cost: 1}, bucket.Take{Key: "old", Limit: wide, Cost: 1}).Allowed {
							admitted++
						}
						admitted += r.take("new", l, 1)
					}
					if admitted > 10 {
						t.Errorf("%d admitted of 10", admitted)
					}
					_ = r.Close()
				})
			})
		}
	}
}

// TestCatchUpBesideASmallerQueue owes units of a leaky bucket whose requests may wait. The first request after the
// outage cannot wait, so its burst is smaller. Redis is still charged for all units.
func TestCatchUpBesideASmallerQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r, l := newReplica(t, s, nearstore.Config{}), perDay(bucket.LeakyBucket, 100)
		small := l
		small.Burst = 1
		r.take("k", l, 1)
		r.link.set(fate{refused: true})
		r.take("k", l, 60)
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
		r.take("k", small, 1)
		if used := s.used("k", l); used != 61 {
			t.Errorf("Redis has charged %d, want 61", used)
		}
		_ = r.Close()
	})
}

// TestQueueInAnOutage holds requests beyond the burst of a token bucket before, in and after an outage. Their times
// continue from the last known state, and Redis is charged for all units, also for more than twice the burst.
func TestQueueInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r, l := newReplica(t, s, nearstore.Config{}), perDay(bucket.TokenBucket, 100)
		l.Burst = 2
		queued := bucket.Take{Key: "k", Limit: l, Cost: 1}
		queued.Queue(10)
		begin, unit := time.Now(), 24*time.Hour/100
		for i := range 15 {
			r.link.set(fate{refused: i >= 4 && i < 9, reach: time.Millisecond, back: time.Millisecond})
			o := r.ask(queued)
			if i >= 12 {
				if o.Allowed || o.RetryAfter <= 0 {
					t.Errorf("request %d: allowed %t, retry after %d; want denied while 10 wait", i, o.Allowed, o.RetryAfter)
				}
				continue
			}
			leaves := time.Since(begin) + time.Duration(o.Decisions[0].Delay)*time.Microsecond
			want := time.Duration(max(0, i-1)) * unit
			if off := leaves - want; !o.Allowed || off < -20*time.Millisecond || off > 20*time.Millisecond {
				t.Errorf("request %d: allowed %t, leaves after %v, want %v", i, o.Allowed, leaves, want)
			}
		}
		if used := s.used("k", l); used != 12 {
			t.Errorf("Redis has charged %d, want 12", used)
		}
		_ = r.Close()
	})
}

// TestSettlements runs one replica through faults of all kinds, and gives back some of what was admitted. What was
// admitted and not given back is bounded by replica.most.
func TestSettlements(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		var net atomic.Int64
		var all sync.WaitGroup
		for caller := range 3 {
			own := rand.New(rand.NewPCG(random.Uint64(), uint64(caller)))
			all.Go(func() {
				for range 12 {
					time.Sleep(time.Duration(own.IntN(40)) * time.Millisecond)
					if !r.ask(bucket.Take{Key: "k", Limit: l, Cost: 1}).Allowed {
						continue
					}
					net.Add(1)
					if own.IntN(3) == 0 {
						r.ask(bucket.Take{Key: "k", Limit: l, Refund: 1})
						net.Add(-1)
					}
				}
			})
		}
		for range 20 {
			r.link.set(randomFate(random))
			time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		}
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
		all.Wait()
		time.Sleep(2 * time.Second)
		net.Add(int64(r.take("k", l, int(2*l.Requests))))
		if net.Load() > r.most(l) {
			t.Errorf("%d admitted of %d and not given back, %+v", net.Load(), l.Requests, r.Stats())
		}
		_ = r.Close()
	})
}

// TestReloadsInAnOutage also changes the limit of the bucket, to other numbers and to 0. Some requests need a second
// bucket, too. At most the largest limit is admitted.
func TestReloadsInAnOutage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		var admitted atomic.Int64
		var now atomic.Pointer[bucket.Limit]
		now.Store(&l)
		var all sync.WaitGroup
		const callers = 3
		for caller := range callers {
			own := rand.New(rand.NewPCG(random.Uint64(), uint64(caller)))
			all.Go(func() {
				for range 12 {
					time.Sleep(time.Duration(own.IntN(40)) * time.Millisecond)
					takes := []bucket.Take{{Key: "k", Limit: *now.Load(), Cost: 1}}
					if own.IntN(3) == 0 {
						takes = append(takes, bucket.Take{Key: "other", Limit: perDay(l.Algorithm, 5), Cost: 1})
					}
					if r.ask(takes...).Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		for range 20 {
			r.link.set(randomFate(random))
			if random.IntN(3) == 0 {
				changed := l
				switch { // a unit of another rate of a bucket is another unit
				case random.IntN(4) == 0:
					changed.Requests = 0
				case l.Algorithm.HasBurst():
					changed.Burst = 1 + random.Int64N(l.Burst)
				default:
					changed.Requests = 1 + random.Int64N(l.Requests)
				}
				now.Store(&changed)
			}
			time.Sleep(time.Duration(random.IntN(40)) * time.Millisecond)
		}
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
		all.Wait()
		time.Sleep(2 * time.Second)
		admitted.Add(int64(r.take("k", l, int(2*l.Requests))))
		if admitted.Load() > r.most(l) {
			t.Errorf("admitted %d of %d, %+v", admitted.Load(), l.Requests, r.Stats())
		}
		_ = r.Close()
	})
}
