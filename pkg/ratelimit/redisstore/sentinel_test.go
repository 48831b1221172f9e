package redisstore_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	cfg := redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs()}
	storetest.Run(t, func(t *testing.T) storetest.Store { return open(t, cfg) })
	if name := open(t, cfg).Nodes()[0].Name; name != sentinels.Name {
		t.Errorf("the node is named %s, want %s", name, sentinels.Name)
	}
}

// TestSentinelFailover kills the master while requests go on. Sentinel makes the replica the master, and the store
// finds it.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	s := open(t, redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs(), Timeout: brief})
	answers(t, s)
	under := newLoad(t, s, "k")
	under.await(100)
	sentinels.Master.Kill()
	await(t, "the replica to be asked", func() bool {
		role, err := sentinels.Replica.Do("ROLE")
		return err == nil && strings.HasPrefix(role, "master") && takeOne(t, s, "k", perDay(loadLimit)).Err == nil
	})
	under.await(100)
	under.stop()
}

// TestSentinelDemoted makes the sentinels fail over while the old master lives on. It answers as a replica, and the
// store leaves it.
func TestSentinelDemoted(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	s := open(t, redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs(), Timeout: brief})
	answers(t, s)
	under := newLoad(t, s, "k")
	under.await(100)
	await(t, "the failover to begin", func() bool {
		_, err := sentinels.Sentinels[0].Do("SENTINEL", "FAILOVER", sentinels.Name)
		return err == nil
	})
	await(t, "the old master to be a replica", func() bool {
		role, err := sentinels.Master.Do("ROLE")
		return err == nil && strings.HasPrefix(role, "slave")
	})
	stats := commandStats(t, sentinels.Replica)
	await(t, "the new master to be asked", func() bool { return stats()["evalsha"] > 100 })
	under.stop()
}
