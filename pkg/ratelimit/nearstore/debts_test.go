package nearstore_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// cluster is several simulated servers. The first letter of a key names the one that has the bucket.
type cluster map[string]*link

// newCluster returns two servers, "a" and "b", and a replica of both.
func newCluster(t *testing.T, cfg nearstore.Config) (cluster, *replica) {
	t.Helper()
	c := cluster{}
	for i, name := range []string{"a", "b"} {
		s := newServer()
		s.epoch += uint64(1000 * i)
		c[name] = newLink(s)
	}
	return c, newReplicaOf(t, c, cfg)
}

func (c cluster) of(t *bucket.Take) *link { return c[t.Key[:1]] }

// Start implements nearstore.Shared, for requests of one bucket.
func (c cluster) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { ratelimit.Take(ctx, c.of(&requests[i].Takes[0]), requests[i:i+1], outcomes[i:i+1]) })
	}
	all.Wait()
}

// Epoch implements nearstore.Shared.
func (c cluster) Epoch(t *bucket.Take) uint64 { return c.of(t).Epoch(t) }

// Suspect implements nearstore.Shared.
func (c cluster) Suspect(t *bucket.Take) { c.of(t).Suspect(t) }

// charged returns how many units the server has charged.
func (s *server) charged() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.units
}

// TestOneServerHangs has two servers hang, and one of them answer again. The background charges what is owed to that
// one. To the other one it sends no catch-up until it answers, because one without an answer is never sent again.
func TestOneServerHangs(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const buckets, hits = 200, 3
				servers, r := newCluster(t, nearstore.Config{})
				l := perDay(algorithm, 10)
				outage := func(f fate) {
					for _, server := range servers {
						server.set(f)
					}
				}
				outage(fate{refused: true})
				for i := range buckets {
					for name := range servers {
						r.take(name+strings.Repeat("x", i), l, hits)
					}
				}
				outage(fate{lost: true})
				time.Sleep(time.Second)
				servers["a"].set(fate{})
				time.Sleep(20 * time.Second)
				if got := servers["a"].charged(); got != buckets*hits {
					t.Errorf("%d units are charged at the server that answers, want %d", got, buckets*hits)
				}
				if lost := r.Stats().Uncertain; lost != 0 {
					t.Errorf("%d units went to a server that hangs, want none", lost)
				}
				servers["b"].set(fate{})
				time.Sleep(20 * time.Second)
				if got := servers["b"].charged(); got != buckets*hits {
					t.Errorf("%d units are charged at the server that hung, want %d", got, buckets*hits)
				}
				if owing := r.Stats().Owing; owing != 0 {
					t.Errorf("%d buckets are still owing", owing)
				}
				_ = r.Close()
			})
		})
	}
}

// TestCatchUpBeyondTheLimit has two replicas admit the whole limit each, one of them without Redis. Redis then holds
// the units of both, so a client that gives some back gets no unit in addition. All those of the catch-up are minted.
func TestCatchUpBeyondTheLimit(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, l := newServer(), perDay(algorithm, 6)
				a, b := newReplica(t, s, nearstore.Config{}), newReplica(t, s, nearstore.Config{})
				b.link.set(fate{refused: true})
				if got := a.take("k", l, 6) + b.take("k", l, 6); got != 12 {
					t.Fatalf("%d admitted, want 6 by each", got)
				}
				b.link.set(fate{})
				if got := b.take("k", l, 1); got != 0 || s.used("k", l) != 12 || b.Stats().Minted != 6 {
					t.Errorf("%d more admitted, Redis holds %d units, %d minted; want none, 12 and 6",
						got, s.used("k", l), b.Stats().Minted)
				}
				b.ask(bucket.Take{Key: "k", Limit: l, Refund: 6})
				if got := b.take("k", l, 6); got != 0 {
					t.Errorf("%d admitted after 6 of 12 were given back, want none", got)
				}
				_, _ = a.Close(), b.Close()
			})
		})
	}
}

// TestDebtOfAWindow owes units of a window when Redis answers again. Near the end of the window, by its own clock and
// that of Redis, the catch-up may arrive in the next window. If no unit of a window counts there, the debt is dropped.
func TestDebtOfAWindow(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		if algorithm.HasBurst() {
			continue // what was admitted has leaked until then
		}
		for left, want := range map[time.Duration]int64{100 * time.Millisecond: 3, 1500 * time.Microsecond: 0} {
			t.Run(algorithm.String()+" "+left.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, l := newServer(), perSecond(algorithm, 10)
					end := time.Now().Truncate(time.Second).Add(2 * time.Second)
					var charged bucket.State
					if charged.Charge(&l, end.UnixMicro()-1, 3); charged.Used(&l, end.UnixMicro()) > 0 {
						want = 3
					}
					r := newReplica(t, s, nearstore.Config{})
					time.Sleep(time.Until(end.Add(-900 * time.Millisecond)))
					r.take("k", l, 1)
					time.Sleep(time.Until(end.Add(-750 * time.Millisecond)))
					r.link.set(fate{refused: true})
					if got := r.take("k", l, 3); got != 3 {
						t.Fatalf("%d admitted without Redis, want 3", got)
					}
					time.Sleep(time.Until(end.Add(-left)))
					r.link.set(fate{reach: 10 * time.Millisecond})
					r.take("k", l, 1)
					if got := s.charged(); got != 2+want {
						t.Errorf("Redis has charged %d units, want the 2 of takes and %d of the catch-up", got, want)
					}
					time.Sleep(time.Second)
					if stats := r.Stats(); stats.Owing != 0 || int64(stats.CaughtUp) != want {
						t.Errorf("%d buckets are owing and %d units are caught up, want none and %d", stats.Owing, stats.CaughtUp,
							want)
					}
					_ = r.Close()
				})
			})
		}
	}
}

// TestManyReplicas has each unit of an outage count for more units than the bucket holds. Redis is charged for each one
// once, and nothing comes back sooner than it would with one replica.
func TestManyReplicas(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		replicas := 1 + random.Int64N(100)
		r := newReplica(t, s, nearstore.Config{})
		r.SetReplicas(int(replicas))
		admitted := r.take("k", l, random.IntN(3))
		r.link.set(fate{refused: true})
		most := int64(0) // of one request
		for range 30 {
			cost := 1 + random.Int64N(l.Requests)
			if r.ask(bucket.Take{Key: "k", Limit: l, Cost: uint64(cost)}).Allowed {
				admitted, most = admitted+int(cost), max(most, cost)
			}
		}
		r.link.set(fate{})
		time.Sleep(time.Minute)
		if used := s.used("k", l); used != int64(admitted) {
			t.Errorf("%d replicas: Redis holds %d units of %d, and %d were admitted", replicas, used, l.Requests, admitted)
		}

		const windows = 20
		l.Window = 1_000_000
		r.link.set(fate{refused: true})
		admitted = 0
		for range 10 * windows {
			cost := 1 + random.Int64N(l.Requests)
			if r.ask(bucket.Take{Key: "short", Limit: l, Cost: uint64(cost)}).Allowed {
				admitted += int(cost)
			}
			time.Sleep(time.Duration(l.Window) * time.Microsecond / 10)
		}
		share := (windows+1)*l.Requests/replicas + l.Requests
		if l.Algorithm.HasBurst() && int64(admitted) > share {
			t.Errorf("one of %d replicas admitted %d of %d a second in %d s, want at most %d",
				replicas, admitted, l.Requests, windows, share)
		}
		_ = r.Close()
	})
}

// TestEvictedWhileACatchUpFlies forgets a bucket whose catch-up is on the wire. Redis charges the catch-up once, or
// never.
func TestEvictedWhileACatchUpFlies(t *testing.T) {
	for name, f := range map[string]fate{
		"charged": {reach: 10 * time.Millisecond, back: 10 * time.Millisecond},
		"unheard": {reach: 10 * time.Millisecond, unheard: true},
		"lost":    {lost: true},
	} {
		for _, algorithm := range bucket.Algorithms {
			t.Run(algorithm.String()+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer()
					r := newReplica(t, s, nearstore.Config{MaxBuckets: 1})
					l := perDay(algorithm, 10)
					r.link.set(fate{refused: true})
					admitted := r.take("k", l, 4)
					time.Sleep(time.Millisecond) // the background has asked, and waits
					r.link.set(fate{})
					r.link.fates = []fate{f}
					var flying sync.WaitGroup
					flying.Go(func() { admitted += r.take("k", l, 1) })
					time.Sleep(5 * time.Millisecond)
					for i := range 1000 {
						r.take(strings.Repeat("x", i+2), perDay(algorithm, 1), 2)
					}
					flying.Wait()
					time.Sleep(time.Minute)
					admitted += r.take("k", l, 20)
					want := 10
					switch {
					case name == "lost" && algorithm == bucket.SlidingWindowLog:
						want += 5 // what was owed
					case name == "lost":
						want += 4 // a floor restores the unit of unknown outcome, which came later
					}
					if used := s.used("k", l); used != 10 || admitted != want {
						t.Errorf("%d admitted, want %d; Redis holds %d units of 10", admitted, want, used)
					}
					_ = r.Close()
				})
			})
		}
	}
}
