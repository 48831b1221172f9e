package nearstore_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestOneReplicaAdmitsItsLimit runs one replica through faults of all kinds, without a loss of state. It admits at most
// the limit and the units of unknown outcome.
func TestOneReplicaAdmitsItsLimit(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		load := randomLoad(random)
		admitted := load.storm(random, []*replica{r}, l, func() {})
		most := l.Requests + int64(r.Stats().Uncertain) + load.overtaking(r)
		if admitted > most {
			t.Errorf("admitted %d of %d, %+v, %+v", admitted, l.Requests, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestLossOfState also empties Redis. Each loss mints at most the takes that are on the wire.
func TestLossOfState(t *testing.T) {
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
		most := l.Requests + int64(r.Stats().Uncertain) + load.overtaking(r) + int64(losses)*load.onTheWire()
		if admitted > most {
			t.Errorf("admitted %d of %d, %d losses, %+v, %+v", admitted, l.Requests, losses, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestClockOfRedisSteps also lets the clock of Redis step, a second or an hour, forward and back.
func TestClockOfRedisSteps(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		l.Window = bucket.MaxWindow / 12
		s := newServer()
		r := newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0})
		load := randomLoad(random)
		admitted := load.storm(random, []*replica{r}, l, func() {
			if random.IntN(5) == 0 {
				s.mu.Lock()
				s.ahead += []time.Duration{time.Second, -time.Second, time.Hour, -time.Hour}[random.IntN(4)]
				s.mu.Unlock()
			}
		})
		most := l.Requests + int64(r.Stats().Uncertain) + load.overtaking(r)
		if admitted > most {
			t.Errorf("admitted %d of %d, %+v, %+v", admitted, l.Requests, load, r.Stats())
		}
		_ = r.Close()
	})
}

// TestNothingIsStolen runs several replicas through faults and losses of all kinds. Redis never holds more than it has
// charged, and what was admitted without an answer.
func TestNothingIsStolen(t *testing.T) {
	each(t, func(t *testing.T, random *rand.Rand, l bucket.Limit) {
		s := newServer()
		var replicas []*replica
		for range 1 + random.IntN(3) {
			replicas = append(replicas, newReplica(t, s, nearstore.Config{DenialCache: random.IntN(2) == 0}))
		}
		load := randomLoad(random)
		load.storm(random, replicas, l, func() {
			if random.IntN(10) == 0 {
				s.lose(random.IntN(2) == 0)
			}
		})
		most := s.units
		for _, r := range replicas {
			most += int64(r.Stats().Uncertain)
		}
		if used := s.used("k", l); used > most {
			t.Errorf("Redis holds %d units, and has charged %d, %d replicas, %+v", used, s.units, len(replicas), load)
		}
		for _, r := range replicas {
			_ = r.Close()
		}
	})
}
