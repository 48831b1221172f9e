package nearstore_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestStore runs the conformance suite in front of Redis, with the denial cache and without it.
func TestStore(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, cache := range []bool{true, false} {
		t.Run(fmt.Sprintf("denial cache %t", cache), func(t *testing.T) {
			storetest.Run(t, func(t *testing.T) storetest.Store {
				return open(t, redisstore.Config{URL: server.Addr}, nearstore.Config{DenialCache: cache})
			})
		})
	}
}

// TestSeveralReplicas shares buckets between three replicas.
func TestSeveralReplicas(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, cache := range []bool{true, false} {
		t.Run(fmt.Sprintf("denial cache %t", cache), func(t *testing.T) {
			var replicas []storetest.Store
			for range 3 {
				replicas = append(replicas, open(t, redisstore.Config{URL: server.Addr}, nearstore.Config{DenialCache: cache}))
			}
			storetest.Concurrent(t, replicas...)
		})
	}
}

// TestQueueOfSeveralReplicas sends requests at once through three replicas. By the clock of Redis, those beyond the
// burst leave in the order of their charges, one in each interval.
func TestQueueOfSeveralReplicas(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	const interval, burst, each = 60_000_000, 3, 8
	limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 60, Window: 60 * interval, Burst: burst}
	queued := bucket.Take{Key: "queue", Limit: limit, Cost: 1}
	queued.Queue(3 * each)
	type wait struct{ charged, leaves int64 }
	waits := make([]wait, 3*each)
	var group sync.WaitGroup
	for i := range 3 {
		r := &replica{Store: open(t, redisstore.Config{URL: server.Addr}, nearstore.Config{})}
		for k := range each {
			group.Go(func() {
				if o := r.ask(queued); o.Allowed && len(o.Seen) == 1 {
					s := &o.Seen[0]
					waits[i*each+k] = wait{s.State.Last + s.State.Count, s.Clock + o.Decisions[0].Delay}
				} else {
					t.Errorf("not allowed by Redis: %+v", o)
				}
			})
		}
	}
	group.Wait()
	slices.SortFunc(waits, func(a, b wait) int { return cmp.Compare(a.charged, b.charged) })
	for i := burst + 1; i < len(waits); i++ {
		if gap := waits[i].leaves - waits[i-1].leaves; gap != interval {
			t.Errorf("charge %d leaves %d µs after the one before, want %d", i, gap, interval)
		}
	}
}

// TestCluster runs the suite in front of a Redis Cluster, where one request may be in several places.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	for _, cache := range []bool{true, false} {
		t.Run(fmt.Sprintf("denial cache %t", cache), func(t *testing.T) {
			storetest.RunSpread(t, func(t *testing.T) storetest.Store {
				cfg := redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs()}
				return open(t, cfg, nearstore.Config{DenialCache: cache})
			})
		})
	}
}

// patient is a timeout for tests in which Redis answers and the machine may be busy.
const patient = time.Minute

// open returns a store in front of a Redis, which ends with the test.
func open(t testing.TB, redis redisstore.Config, cfg nearstore.Config) *nearstore.Store {
	t.Helper()
	if redis.Timeout == 0 {
		redis.Timeout = patient
	}
	shared, err := redisstore.New(redis)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Shared = shared
	s, err := nearstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := shared.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}
