package rediskeys_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/rediskeys"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestFailover kills the master that has the keys. A replica of the service keeps them, and finds them at the new
// master. Keys can be changed there.
func TestFailover(t *testing.T) {
	t.Parallel()
	const key = "p:keys"
	t.Run("Sentinel", func(t *testing.T) {
		t.Parallel()
		sentinels := testenv.Sentinels(t)
		sentinels.Watch()
		failOver(t, redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs()}, sentinels.Master, sentinels.Replica)
	})
	t.Run("Cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testenv.Cluster(t, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
		master := cluster.MasterOf(key)
		failOver(t, redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs()}, master, cluster.AddReplica(master))
	})
}

func failOver(t *testing.T, cfg redisstore.Config, master, replica *testenv.RedisServer) {
	t.Helper()
	cfg.Timeout = 5 * time.Second // a busy machine is not a fault
	client, err := redisstore.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	store := rediskeys.New(client, "p:", newSecret(t))
	testenv.Eventually(t, func() error { return store.Add(t.Context(), record(t, "aaaaaaaa")) }, "the first key")
	testenv.Eventually(t, func() error {
		if n, err := replica.Do("DBSIZE"); err != nil || n != "1" {
			return fmt.Errorf("it has %s keys (%w)", n, err)
		}
		return nil
	}, "the replica to have the key")

	var w watcher
	polls := make(chan time.Time, 1) // when a poll has found the keys
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() {
		store.Follow(ctx, rediskeys.Generation{}, func(p rediskeys.Poll) {
			for _, refusal := range []error{rediskeys.ErrLost, rediskeys.ErrOld, rediskeys.ErrUnsigned} {
				if errors.Is(p.Err, refusal) {
					t.Error(p.Err)
				}
			}
			if p.Keys != nil {
				w.set(ids(*p.Keys))
			}
			if p.Err == nil {
				select {
				case <-polls:
				default:
				}
				polls <- time.Now()
			}
		})
	})
	defer done.Wait()
	defer cancel()
	testenv.Eventually(t, w.reports("aaaaaaaa"), "the keys")
	master.Kill()
	testenv.Eventually(t, func() error {
		_, err := replica.Do("SET", "{p:keys}", "x")
		return err
	}, "the replica to accept writes")
	right := time.Now()
	for found := range polls {
		if found.After(right) {
			t.Logf("a poll finds the keys %v after the new master accepts writes", found.Sub(right).Round(time.Millisecond))
			break
		}
	}
	testenv.Eventually(t, func() error { return store.Add(t.Context(), record(t, "bbbbbbbb")) }, "a change")
	testenv.Eventually(t, w.reports("aaaaaaaa bbbbbbbb"), "both keys")
}
