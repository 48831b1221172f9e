package nearstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// trap runs a test in a bubble, with a server and one replica.
func trap(t *testing.T, cfg nearstore.Config, test func(t *testing.T, s *server, r *replica)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := newReplica(t, s, cfg)
		test(t, s, r)
		_ = r.Close()
	})
}

// one returns a take of one unit.
func one(l bucket.Limit) bucket.Take { return bucket.Take{Key: "k", Limit: l, Cost: 1} }

// TestCounterIsJoinedByParts is trap T1. Of two states of a sliding window counter, neither has all: one has more of
// the current window, the other more of the previous one. After a loss, both parts come back.
func TestCounterIsJoinedByParts(t *testing.T) {
	trap(t, nearstore.Config{}, func(t *testing.T, s *server, a *replica) {
		b := newReplica(t, s, nearstore.Config{})
		l := bucket.Limit{Algorithm: bucket.SlidingWindowCounter, Requests: 100, Window: 3_000_000}
		time.Sleep(time.Until(time.Now().Truncate(3 * time.Second).Add(3*time.Second + time.Millisecond)))
		b.take("k", l, 5) // B knows the window that will be the previous one
		time.Sleep(3 * time.Second)
		s.lose(false) // A knows only the next window
		a.take("k", l, 3)
		b.take("k", l, 1) // B's first answer shows the loss, its second take restores
		b.take("k", l, 1)
		a.take("k", l, 1)
		state := s.states["k"]
		if state.Count < 3 || state.Part != 5 {
			t.Errorf("current %d, previous %d; want at least the 3 of A and the 5 of B", state.Count, state.Part)
		}
		_ = b.Close()
	})
}

// TestSwappedRepliesAreNoLoss is trap T3: of two takes at once, the reply to the later one arrives first. The other one
// then shows less, but nothing was lost.
func TestSwappedRepliesAreNoLoss(t *testing.T) {
	trap(t, nearstore.Config{}, func(t *testing.T, s *server, r *replica) {
		l := perDay(bucket.FixedWindow, 10)
		r.take("k", l, 2)
		r.link.fates = []fate{{reach: 1 * time.Millisecond, back: 20 * time.Millisecond}}
		go r.take("k", l, 1)
		time.Sleep(2 * time.Millisecond)
		r.take("k", l, 1)
		time.Sleep(time.Second)
		if got := r.take("k", l, 10); got != 6 {
			t.Errorf("%d admitted after 4 of 10, want 6", got)
		}
		if stats := r.Stats(); stats.Floors != 0 || stats.Losses != 0 {
			t.Errorf("%+v, want no loss and no floor", stats)
		}
	})
}

// TestRefundOfAnotherReplicaIsKept is trap T4: A knows 10; B gives back 5; A's next answer shows 6. The floor of 10
// must not undo the refund.
func TestRefundOfAnotherReplicaIsKept(t *testing.T) {
	trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, a *replica) {
		b := newReplica(t, s, nearstore.Config{})
		l := perDay(bucket.TokenBucket, 12)
		a.take("k", l, 10)
		b.ask(bucket.Take{Key: "k", Limit: l, Refund: 5})
		if got := a.take("k", l, 12); got != 7 {
			t.Errorf("%d admitted, want the 7 that are left after the refund", got)
		}
		if stats := a.Stats(); stats.Floors == 0 || stats.Losses != 0 {
			t.Errorf("%+v, want a floor that was voided, and no loss", stats)
		}
		_ = b.Close()
	})
}

// TestCutLog is trap T5: an answer shows only the oldest units of a long log. For the fallback, the others are as new
// as the newest; for a floor and a denial, as old as the cut.
func TestCutLog(t *testing.T) {
	trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
		s.cut = true
		l := bucket.Limit{Algorithm: bucket.SlidingWindowLog, Requests: 10, Window: 60_000_000}
		for range 10 {
			r.take("k", l, 1)
			time.Sleep(5 * time.Second)
		}
		// The oldest unit is 50 s old, the newest 5 s. In 11 s, Redis has room for two.
		r.link.set(fate{refused: true})
		time.Sleep(11 * time.Second)
		if got := r.take("k", l, 10); got > 2 {
			t.Errorf("%d admitted in the outage, want at most the 2 that have left the window", got)
		}
		r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
		s.lose(true)
		r.take("k", l, 1)
		if used := s.used("k", l); used > 10 {
			t.Errorf("the floor makes Redis hold %d, but only 10 were admitted", used)
		}
	})
}

// TestLateAnswerClearsNoSuspicion is trap T7: an answer from before a loss arrives after it. The next take still
// carries the floor.
func TestLateAnswerClearsNoSuspicion(t *testing.T) {
	trap(t, nearstore.Config{}, func(t *testing.T, s *server, r *replica) {
		l := perDay(bucket.FixedWindow, 10)
		r.take("k", l, 8)
		r.link.fates = []fate{{reach: time.Millisecond, back: 20 * time.Millisecond}}
		go r.take("k", l, 1) // decided before the loss, answered after it
		time.Sleep(5 * time.Millisecond)
		s.lose(true)
		time.Sleep(30 * time.Millisecond)
		if got := r.take("k", l, 10); got != 1 {
			t.Errorf("%d admitted after 9 of 10 and a loss, want 1", got)
		}
	})
}

// TestDenialChargesShadowRules is trap T8: a shadow rule beside an exhausted one is still charged.
func TestDenialChargesShadowRules(t *testing.T) {
	trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
		l := perDay(bucket.FixedWindow, 5)
		full := one(l)
		shadow := bucket.Take{Key: "shadow", Limit: l, Cost: 1, Role: bucket.Shadow}
		r.take("k", l, 6)
		for range 3 {
			if r.ask(full, shadow).Allowed {
				t.Fatal("allowed by an exhausted rule")
			}
		}
		if used := s.used("shadow", l); used != 3 {
			t.Errorf("the shadow rule has counted %d of 3", used)
		}
		r.ask(full, shadow)
		r.ask(full, shadow)
		calls := s.calls
		if o := r.ask(full, shadow); o.Origin != bucket.FromDenialCache || s.calls != calls {
			t.Errorf("decided by %d with %d calls; want no call, since the shadow rule is over, too", o.Origin, s.calls-calls)
		}
	})
}

// TestDenialsAreCached counts the requests that Redis receives while a client is over its limit: one a second.
func TestDenialsAreCached(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
				l := perDay(algorithm, 5)
				r.take("k", l, 6)
				calls := s.calls
				for range 5000 {
					if o := r.ask(one(l)); o.Allowed || o.RetryAfter <= 0 {
						t.Fatalf("%+v, want it denied for a while", o)
					}
					time.Sleep(time.Millisecond)
				}
				if calls = s.calls - calls; calls < 4 || calls > 6 {
					t.Errorf("5000 denials in 5 s needed %d calls, want one a second", calls)
				}
			})
		})
	}
}

// TestWhatIsNotCached lists takes whose denial would change something in Redis.
func TestWhatIsNotCached(t *testing.T) {
	l := perDay(bucket.FixedWindow, 5)
	for name, takes := range map[string][]bucket.Take{
		"counts denials":       {{Key: "k", Limit: l, Cost: 1, CountDenied: true}},
		"beside a counted one": {one(l), {Key: "other", Limit: l, Cost: 1, CountDenied: true}},
		"refunds":              {one(l), {Key: "other", Limit: l, Refund: 1}},
		"beside a shadow":      {one(l), {Key: "other", Limit: l, Cost: 1, Role: bucket.Shadow}},
		"a quota":              {{Key: "k", Limit: l, Cost: 1, Role: bucket.Quota}},
		"another limit":        {one(perDay(bucket.FixedWindow, 4))},
	} {
		t.Run(name, func(t *testing.T) {
			trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
				r.take("k", l, 6)
				if o := r.ask(takes...); o.Origin != bucket.FromStore || o.Allowed {
					t.Errorf("%+v, want a denial by Redis", o)
				}
			})
		})
	}
}

// TestStrictTakesAreAlwaysCounted sends what a strict limiter asks: takes that count, whatever the limit. Redis
// receives each of them, and a loss of state changes no count.
func TestStrictTakesAreAlwaysCounted(t *testing.T) {
	trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
		l := perDay(bucket.FixedWindow, bucket.MaxRequests)
		count := bucket.Take{Key: "k", Limit: l, Cost: 1, Role: bucket.Shadow, CountDenied: true}
		for i := range 100 {
			if i == 50 {
				s.lose(true)
			}
			if o := r.ask(count); o.Origin != bucket.FromStore {
				t.Fatalf("take %d was decided by %d, want Redis", i, o.Origin)
			}
		}
		if used := s.used("k", l); used != 100 || s.calls != 100 {
			t.Errorf("Redis has counted %d in %d calls, want 100 each", used, s.calls)
		}
	})
}

// TestBatchIsDecidedInItsOrder sends a refund and a take of the same exhausted bucket in one batch.
func TestBatchIsDecidedInItsOrder(t *testing.T) {
	trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
		l := perDay(bucket.FixedWindow, 5)
		r.take("k", l, 6)
		batch, outcomes := make([]bucket.Request, 2), make([]bucket.Outcome, 2)
		batch[0].Add(bucket.Take{Key: "k", Limit: l, Refund: 1})
		batch[1].Add(one(l))
		ratelimit.Take(context.Background(), r, batch, outcomes)
		if !outcomes[1].Allowed {
			t.Errorf("%+v, want it allowed by the refund before it", outcomes[1])
		}
	})
}

// TestClockSteps lets the clock of Redis step, while the replica decides with it and without it.
func TestClockSteps(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		for _, step := range []time.Duration{time.Second, -time.Second, time.Hour, -time.Hour} {
			t.Run(algorithm.String()+" "+step.String(), func(t *testing.T) {
				trap(t, nearstore.Config{DenialCache: true}, func(t *testing.T, s *server, r *replica) {
					l := perDay(algorithm, 100)
					time.Sleep(2 * time.Hour) // no step leaves the window
					admitted := r.take("k", l, 60)
					s.step(step)
					admitted += r.take("k", l, 20)
					r.link.set(fate{refused: true})
					admitted += r.take("k", l, 60)
					r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
					admitted += r.take("k", l, 100)
					most := 100
					if algorithm.HasBurst() && step > 0 {
						most += int(100 * step / (24 * time.Hour)) // what refills in the step
					}
					if admitted > most+1 || admitted < 100 {
						t.Errorf("%d of 100 admitted", admitted)
					}
				})
			})
		}
	}
}

// TestRepliesOfUnknownOutcome loses the answers of an outage. Each hit is charged at most once.
func TestRepliesOfUnknownOutcome(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			trap(t, nearstore.Config{}, func(t *testing.T, s *server, r *replica) {
				l := perDay(algorithm, 10)
				admitted := r.take("k", l, 3)
				r.link.set(fate{reach: time.Millisecond, unheard: true})
				admitted += r.take("k", l, 4) // Redis has charged them, too
				r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				admitted += r.take("k", l, 10)
				if admitted != 10 || s.used("k", l) != 10 {
					t.Errorf("%d admitted and %d charged of 10; want 10 each", admitted, s.used("k", l))
				}
			})
		})
	}
}

// TestLostRequestsComeBackByAFloor loses the requests of an outage before they reach Redis, which answers unknown.
func TestLostRequestsComeBackByAFloor(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			trap(t, nearstore.Config{}, func(t *testing.T, s *server, r *replica) {
				l := perDay(algorithm, 10)
				admitted := r.take("k", l, 3)
				r.link.set(fate{lost: true})
				admitted += r.take("k", l, 4)
				r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				want := 10
				if algorithm == bucket.SlidingWindowLog {
					want += 4 // a floor could count them twice, so they are forgotten
				}
				if admitted += r.take("k", l, 10); admitted != want {
					t.Errorf("%d admitted of 10, want %d", admitted, want)
				}
			})
		})
	}
}

// TestReplicasDivideWhatIsLeft cuts three replicas off, each of which has seen the last charge.
func TestReplicasDivideWhatIsLeft(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit, used, n = 100, 40, 3
				s, l := newServer(), perDay(algorithm, limit)
				var replicas []*replica
				for range n {
					r := newReplica(t, s, nearstore.Config{})
					r.SetReplicas(n)
					replicas = append(replicas, r)
				}
				replicas[0].take("k", l, used-n)
				admitted := used - n
				for _, r := range replicas {
					admitted += r.take("k", l, 1)
				}
				for _, r := range replicas {
					r.take("k", l, 0)
					r.ask(bucket.Take{Key: "k", Limit: l, Need: 1}) // it sees the last charge
					r.link.set(fate{refused: true})
				}
				for _, r := range replicas {
					got := r.take("k", l, limit)
					if share := (limit - used + n - 1) / n; got != share {
						t.Errorf("a replica admitted %d, want its share of %d", got, share)
					}
					admitted += got
				}
				for _, r := range replicas {
					r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				}
				time.Sleep(time.Minute) // the background catches up
				for _, r := range replicas {
					admitted += r.take("k", l, limit)
				}
				if admitted > limit+n-1 {
					t.Errorf("%d admitted, want at most %d", admitted, limit+n-1)
				}
				for _, r := range replicas {
					_ = r.Close()
				}
			})
		})
	}
}
