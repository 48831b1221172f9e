package nearstore_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

// Take implements nearstore.Shared, for requests of one bucket.
func (c cluster) Take(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome) {
	var all sync.WaitGroup
	for i := range requests {
		all.Go(func() { c.of(&requests[i].Takes[0]).Take(ctx, requests[i:i+1], outcomes[i:i+1]) })
	}
	all.Wait()
}

// Epoch implements nearstore.Shared.
func (c cluster) Epoch(t *bucket.Take) uint64 { return c.of(t).Epoch(t) }

// Suspect implements nearstore.Shared.
func (c cluster) Suspect(t *bucket.Take) { c.of(t).Suspect(t) }

// charged returns how many units the server has charged.
func (l *link) charged() int64 {
	l.server.mu.Lock()
	defer l.server.mu.Unlock()
	return l.units
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
