package nearstore_test

import (
	"fmt"
	"testing"
	"time"

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
