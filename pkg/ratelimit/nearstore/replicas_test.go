package nearstore_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestDebtsWhileReplicasComeAndGo changes the number of replicas again and again while a bucket owes units, and gives
// some of them back. Redis is charged for exactly what was admitted and not given back.
func TestDebtsWhileReplicasComeAndGo(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{})
		l.Requests, l.Burst = 20*l.Requests, 20*l.Burst
		admitted := 0
		for range 3 {
			admitted += r.take("k", l, random.IntN(3))
			r.link.set(fate{refused: true})
			owed := 0
			for range 20 {
				if random.IntN(3) == 0 {
					r.SetReplicas(1 + random.IntN(10))
				}
				cost := 1 + random.IntN(3)
				if owed >= cost && random.IntN(4) == 0 {
					r.ask(bucket.Take{Key: "k", Limit: l, Refund: uint64(cost)})
					owed -= cost
				} else if r.ask(bucket.Take{Key: "k", Limit: l, Cost: uint64(cost)}).Allowed {
					owed += cost
				}
			}
			admitted += owed
			r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
			if random.IntN(2) == 0 {
				r.SetReplicas(1 + random.IntN(10))
				time.Sleep(time.Minute) // the background catches up; otherwise the next take does
			}
		}
		admitted += r.take("k", l, 1)
		time.Sleep(time.Minute)
		if used := s.used("k", l); used != int64(admitted) || r.Stats().Owing != 0 {
			t.Errorf("Redis holds %d units and %d buckets are owing, want %d and none", used, r.Stats().Owing, admitted)
		}
		_ = r.Close()
	})
}

// TestSharesWhileReplicasComeAndGo cuts a replica off from one of two servers. It still learns the number of replicas
// from the other one. A larger number applies at once. A smaller one applies to a bucket once it owes nothing.
func TestSharesWhileReplicasComeAndGo(t *testing.T) {
	const limit = 12
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers, r := newCluster(t, nearstore.Config{})
				l := perDay(algorithm, limit)
				servers["b"].set(fate{refused: true})
				admits := func(replicas, asked, want int, key string) {
					t.Helper()
					r.SetReplicas(replicas)
					if got := r.take(key, l, asked); got != want {
						t.Errorf("one of %d replicas admitted %d of %d more for %s, want %d", replicas, got, asked, key, want)
					}
				}
				admits(2, 1, 1, "b grows")
				admits(4, limit, 2, "b grows") // 3 of 12 in all
				admits(2, limit, 0, "b grows")
				admits(2, limit, 6, "b starts after it")
				admits(1000, limit, 0, "b starts after it")
				admits(1000, limit, 1, "b starts with 1000")
				admits(-1, limit, limit, "b starts with 1")
				admits(1000, limit, limit, "a")
				admits(2, limit, 0, "a")

				servers["b"].set(fate{})
				time.Sleep(20 * time.Second)
				if got := servers["b"].charged(); got != 3+6+1+limit || r.Stats().Owing != 0 {
					t.Errorf("%d units are charged at the server, want %d; %+v", got, 3+6+1+limit, r.Stats())
				}
				servers["b"].set(fate{refused: true})
				admits(2, limit, (limit-3+1)/2, "b grows")
				_ = r.Close()
			})
		})
	}
}

// TestReplicasComeAndGoInAnOutage lets replicas come and go while a server does not answer. All know their number. What
// is admitted grows by a share for each one that comes, and for each one that goes.
func TestReplicasComeAndGoInAnOutage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		l.Requests, l.Burst = 10*l.Requests, 10*l.Burst
		s := newServer()
		var running []*replica
		come := func() {
			r := newReplica(t, s, nearstore.Config{})
			r.link.set(fate{refused: true})
			running = append(running, r)
		}
		come()
		started, admitted, most := 1, 0, float64(l.Requests)
		for range 100 {
			switch n := len(running); {
			case random.IntN(10) == 0 && n < 8:
				come()
				started, most = started+1, most+float64(l.Requests)/float64(n+1)
			case random.IntN(10) == 0 && n > 1:
				i := random.IntN(n)
				_ = running[i].Close()
				running, most = slices.Delete(running, i, i+1), most+float64(l.Requests)/float64(n)
			}
			for _, r := range running {
				r.SetReplicas(len(running))
			}
			admitted += running[random.IntN(len(running))].take("k", l, 1+random.IntN(4))
		}
		if most += float64(started - 1); float64(admitted) > most {
			t.Errorf("%d admitted of %d by %d replicas, want at most %v", admitted, l.Requests, started, most)
		}
		for _, r := range running {
			_ = r.Close()
		}
	})
}

// TestCountsOfDifferentAge has an outage while not all replicas know the number of replicas: some have entered the set
// since the others have read it, and one has never read it.
func TestCountsOfDifferentAge(t *testing.T) {
	const limit, used = 120, 40
	for _, c := range []struct {
		name     string
		counts   []int // what each replica has read
		admitted int   // at most, of what is left
	}{
		{"all know the number", []int{3, 3, 3}, limit - used + 2},
		{"two have entered since", []int{3, 3, 3, 4, 5}, (limit-used)*29/20 + 4},
		{"all have entered at once", []int{1, 2, 3}, (limit-used)*11/6 + 2},
		{"one has gone", []int{3, 3}, (limit-used)*2/3 + 1},
		{"two have started in the outage", []int{3, 3, 3, 0, 0}, limit - used + 2 + 2*limit},
	} {
		for _, algorithm := range bucket.Algorithms {
			t.Run(c.name+"/"+algorithm.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, l := newServer(), perDay(algorithm, limit)
					newReplica(t, s, nearstore.Config{}).take("k", l, used)
					admitted := 0
					for _, count := range c.counts {
						r := newReplica(t, s, nearstore.Config{})
						if count > 0 {
							r.SetReplicas(count)
							r.ask(bucket.Take{Key: "k", Limit: l, Need: 1}) // it sees the last charge
						}
						r.link.set(fate{refused: true})
						admitted += r.take("k", l, 2*limit)
					}
					if admitted > c.admitted || admitted < c.admitted-len(c.counts) {
						t.Errorf("%d admitted, want at most %d and not much less", admitted, c.admitted)
					}
				})
			})
		}
	}
}
