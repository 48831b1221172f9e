package nearstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestOneReplicaAdmitsItsLimit runs one replica through faults of all kinds, without a loss of state. Others seem to
// come and go. See replica.most.
func TestOneReplicaAdmitsItsLimit(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		load := randomLoad(random)
		admitted := load.storm(random, []*replica{r}, l, func() { r.SetReplicas(1 + random.IntN(3)) })
		if admitted > r.most(l) {
			t.Errorf("admitted %d of %d, %+v, %+v", admitted, l.Requests, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestLossOfState also empties Redis. Each loss mints at most the takes that are on the wire.
func TestLossOfState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		losses := 0
		load := randomLoad(random)
		admitted := load.storm(random, []*replica{r}, l, func() {
			if random.IntN(10) == 0 {
				losses++
				s.lose(random.IntN(2) == 0)
			}
		})
		most := r.most(l) + int64(losses)*load.onTheWire()
		if admitted > most {
			t.Errorf("admitted %d of %d, %d losses, %+v, %+v", admitted, l.Requests, losses, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestClockOfRedisSteps also lets the clock of Redis step, a second or an hour, forward and back.
func TestClockOfRedisSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		l.Window = bucket.MaxWindow / 12
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		load := randomLoad(random)
		admitted := load.storm(random, []*replica{r}, l, func() {
			if random.IntN(5) == 0 {
				s.step([]time.Duration{time.Second, -time.Second, time.Hour, -time.Hour}[random.IntN(4)])
			}
		})
		if admitted > r.most(l) {
			t.Errorf("admitted %d of %d, %+v, %+v", admitted, l.Requests, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestNothingIsStolen runs several replicas through faults and losses of all kinds. Redis never holds more than it has
// charged, and what was admitted without an answer.
func TestNothingIsStolen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		if over := stolen(t, random, newServer(), l, 1+random.IntN(3)); over > 0 {
			t.Errorf("Redis holds %d units more than it has charged", over)
		}
	})
}

// TestNothingIsStolenFromLongLogs is the same for a log of which Redis shows only the oldest part. One replica restores
// what was charged. Each further one may restore the same units at other times, at most the limit again.
func TestNothingIsStolenFromLongLogs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		s.cut = true
		replicas, most := 1+random.IntN(3), int64(0)
		if l.Algorithm == bucket.SlidingWindowLog {
			most = int64(replicas-1) * l.Requests
		}
		if over := stolen(t, random, s, l, replicas); over > most {
			t.Errorf("%d replicas: Redis holds %d units more than it has charged, of %d", replicas, over, l.Requests)
		}
	})
}

// stolen runs replicas through faults and losses of all kinds. It returns how many units Redis holds beyond those that
// it has charged, and those that were admitted without an answer.
func stolen(t *testing.T, random *rand.Rand, s *server, l bucket.Limit, replicas int) int64 {
	var all []*replica
	for range replicas {
		all = append(all, newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0}))
	}
	load := randomLoad(random)
	load.storm(random, all, l, func() {
		all[0].SetReplicas(1 + random.IntN(5))
		if random.IntN(10) == 0 {
			s.lose(random.IntN(2) == 0)
		}
	})
	over := s.used("k", l) - s.units
	for _, r := range all {
		over -= int64(r.Stats().Uncertain)
		_ = r.Close()
	}
	return over
}
