package nearstore_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestDenialBesideAnOldBucket lets the clock of Redis step an hour. A request then needs a bucket that is used up, and
// one that was last seen before the step. It is denied, and its wait is that of the bucket that is used up.
func TestDenialBesideAnOldBucket(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		for _, step := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(algorithm.String()+" "+step.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					r := newReplica(t, s, nearstore.Config{DenialCache: true})
					l := bucket.Limit{Algorithm: algorithm, Requests: 10, Burst: 10, Window: 7_200_000_000}
					wide := perDay(algorithm, 1_000)
					r.take("old", wide, 1)
					s.step(step)
					r.take("new", l, 20)
					calls := s.calls
					both := []bucket.Take{{Key: "new", Limit: l, Cost: 1}, {Key: "old", Limit: wide, Cost: 1}}
					alone, got := r.ask(both[0]), r.ask(both...)
					if got.Allowed || s.calls != calls || got.RetryAfter > alone.RetryAfter {
						t.Errorf("allowed: %t, with %d calls, wait %d µs; want a denial without Redis, and at most %d µs",
							got.Allowed, s.calls-calls, got.RetryAfter, alone.RetryAfter)
					}
					_ = r.Close()
				})
			})
		}
	}
}

// TestDenialsAreExact lets two replicas ask for several short buckets at once, with all roles, peeks, counted denials,
// and limits that a reload changes. Redis would deny each request that a replica denies without it, and change nothing.
func TestDenialsAreExact(t *testing.T) {
	t.Parallel()
	var denials atomic.Int64
	for range runs {
		seed := rand.Uint64()
		synctest.Test(t, func(t *testing.T) {
			s := newServer()
			s.ahead = time.Duration(rand.New(rand.NewPCG(seed, 1)).IntN(2000)) * time.Millisecond
			var all sync.WaitGroup
			var replicas [2]*replica
			for i := range replicas {
				replicas[i] = newReplica(t, s, nearstore.Config{DenialCache: true})
			}
			for i := range uint64(4) {
				random := rand.New(rand.NewPCG(seed, 2+i))
				all.Go(func() { denials.Add(askAnything(t, random, s, replicas[i%2])) })
			}
			all.Wait()
			for _, r := range replicas {
				_ = r.Close()
			}
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if denials.Load() == 0 {
		t.Error("nothing was denied without Redis")
	}
}

// TestDenialsEndAfterASecond has one replica see a bucket used up, and another one give units back. The first replica
// cannot notice that. It denies without Redis until the answer is a second old, and then asks Redis, which admits.
func TestDenialsEndAfterASecond(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newServer(), perDay(algorithm, 10)
				a, b := newReplica(t, s, nearstore.Config{DenialCache: true}), newReplica(t, s, nearstore.Config{})
				if got := a.take("k", l, 11); got != 10 {
					t.Fatalf("%d admitted of 10", got)
				}
				answered := time.Now()
				b.ask(bucket.Take{Key: "k", Limit: l, Refund: 5})
				time.Sleep(900 * time.Millisecond)
				calls := s.calls
				if o := a.ask(bucket.Take{Key: "k", Limit: l, Cost: 1}); o.Allowed || s.calls != calls {
					t.Errorf("0.9 s after the answer: allowed %t, %d calls of Redis; want a denial without Redis",
						o.Allowed, s.calls-calls)
				}
				time.Sleep(time.Until(answered.Add(time.Second + time.Millisecond)))
				if got := a.take("k", l, 10); got != 5 {
					t.Errorf("%d admitted a second after the answer, want the 5 that were given back", got)
				}
				_, _ = a.Close(), b.Close()
			})
		})
	}
}

// TestHoldsAloneAreNoDenial has a bucket that only its holds fill. Each request asks Redis, because another replica may
// end a hold at any time. A bucket that is used up denies without Redis, but for settlements.
func TestHoldsAloneAreNoDenial(t *testing.T) {
	eachWithHolds(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, a, b *replica, take bucket.Take) {
		asks := func(what string, want int, ask func()) {
			t.Helper()
			before := s.calls
			if ask(); s.calls != before+want {
				t.Errorf("%s: %d calls of Redis, want %d", what, s.calls-before, want)
			}
		}
		a.reserve(take, 1, 10)
		asks("holds alone", 2, func() {
			if a.reserve(take, 2, 1) != 0 {
				t.Error("a reserve was admitted over the limit")
			}
			b.ask(settling(take, 1, 10, 0))
		})
		if take.Limit.Algorithm == bucket.Concurrency {
			return
		}
		asks("the first denial", 1, func() { a.reserve(take, 2, 1) })
		asks("a reserve", 0, func() {
			if a.reserve(take, 3, 1) != 0 {
				t.Error("a reserve was admitted over the limit")
			}
		})
		asks("a settlement", 1, func() { a.ask(settling(take, 1, 0, 0)) })
		asks("an undo", 1, func() { a.ask(settling(take, 1, 0, 1)) })
	})
}

// trip is the longest round trip, in µs, and so how much longer than necessary a wait can be.
const trip = 6_000

// askAnything asks for random takes, and compares denials without Redis with what Redis would answer at that moment. It
// returns their number.
func askAnything(t *testing.T, random *rand.Rand, s *server, r *replica) (denials int64) {
	for range 150 {
		time.Sleep(time.Duration(random.IntN(12_000)) * time.Microsecond)
		r.link.set(fate{
			reach: time.Duration(random.IntN(trip/2)) * time.Microsecond,
			back:  time.Duration(random.IntN(trip/2)) * time.Microsecond,
		})
		request := make([]bucket.Request, 1)
		for range 1 + random.IntN(3) {
			algorithm := bucket.Algorithms[random.IntN(len(bucket.Algorithms))]
			n := []int64{0, 2, 3, 3, 3, 3, 5}[random.IntN(7)]
			if algorithm == bucket.SlidingWindowLog {
				n = 3 // a denial counted by a smaller limit drops the oldest units, so that an older state has more
			}
			take := bucket.Take{
				Key: algorithm.String(), Cost: uint64(random.IntN(3)), CountDenied: random.IntN(6) == 0,
				Role:  []bucket.Role{bucket.Enforce, bucket.Enforce, bucket.Enforce, bucket.Shadow, bucket.Quota}[random.IntN(5)],
				Limit: bucket.Limit{Algorithm: algorithm, Requests: n, Burst: 1 + random.Int64N(4), Window: 200_000},
			}
			if take.Cost == 0 && random.IntN(2) == 0 {
				take.Need = 1
			}
			if random.IntN(2) == 0 {
				take.Key, take.Hold = take.Key+" held", &bucket.Hold{TTL: 100_000, Most: 3}
				c := bucket.HoldCost{ID: holdID(random.Uint64N(4)), Cost: uint64(random.IntN(3))}
				if random.IntN(3) > 0 {
					take.Hold.Reserves = []bucket.HoldCost{c}
				} else {
					take.Hold.Settles = []bucket.HoldCost{c}
				}
			}
			request[0].Add(take)
		}
		got := make([]bucket.Outcome, 1)
		ratelimit.Take(t.Context(), r, request, got)
		if got[0].Origin != bucket.FromDenialCache {
			continue
		}
		denials++
		ended := int64(0)
		s.mu.Lock()
		loaded := make([]bucket.Loaded, len(request[0].Takes))
		for i, take := range request[0].Takes {
			state := s.states[take.Key]
			loaded[i].State = state.Clone()
			if take.Hold != nil {
				ended = 1_000_000 // the wait for holds that may have ended since
			}
		}
		var want bucket.Outcome
		request[0].Decide(s.clock(), loaded, &want)
		s.mu.Unlock()
		switch {
		case want.Allowed || got[0].Allowed:
			t.Errorf("%+v: allowed: %t, Redis: %t", request[0].Takes, got[0].Allowed, want.Allowed)
		case want.RetryAfter != bucket.Never &&
			(got[0].RetryAfter > max(want.RetryAfter, ended)+trip || got[0].RetryAfter == bucket.Never):
			t.Errorf("%+v: wait %d µs, Redis: %d µs", request[0].Takes, got[0].RetryAfter, want.RetryAfter)
		}
		for i, take := range request[0].Takes {
			if take.Charged(want.Decisions[i].Allowed, false) != 0 || take.Hold != nil && want.Decisions[i].Held.Until != 0 {
				t.Errorf("%+v: Redis would charge %+v", request[0].Takes, take)
			}
		}
	}
	return denials
}
