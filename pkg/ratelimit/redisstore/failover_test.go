package redisstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// sentinelsUnderLoad returns sentinels, a store that follows them, and requests to it that go on.
func sentinelsUnderLoad(t *testing.T, timeout time.Duration) (*testenv.RedisSentinels, *redisstore.Store, *load) {
	t.Helper()
	sentinels := testenv.Sentinels(t)
	s := open(t, redisstore.Config{Mode: redisstore.Sentinel, URL: sentinels.Addrs(), Timeout: timeout})
	answers(t, s)
	under := newLoad(t, s, "k")
	under.await(100)
	return sentinels, s, under
}

// TestSentinelFailover kills the master while requests go on. Sentinel makes the replica the master, and the store
// finds it.
func TestSentinelFailover(t *testing.T) {
	t.Parallel()
	sentinels, _, under := sentinelsUnderLoad(t, brief)
	sentinels.Watch()
	sentinels.Master.Kill()
	fault := time.Now()
	right := awaitMaster(t, sentinels.Replica, "other")
	under.await(100)
	under.stop(1)
	under.report(fault, right)
}

// TestSentinelDemoted makes the sentinels fail over while the old master lives on. It accepts writes for some 10 s
// more, until the sentinels make it a replica. The store leaves it when they name the new one.
func TestSentinelDemoted(t *testing.T) {
	t.Parallel()
	sentinels, s, under := sentinelsUnderLoad(t, patient)
	stats := commandStats(t, sentinels.Replica)
	await(t, "the failover to begin", func() bool {
		_, err := sentinels.Sentinels[0].Do("SENTINEL", "FAILOVER", sentinels.Name)
		return err == nil
	})
	fault := time.Now()
	right := awaitMaster(t, sentinels.Replica, "other")
	await(t, "the new master to be asked", func() bool { return stats()["evalsha"] > 0 })
	t.Logf("the replica is a master after %v; the store asks it after %v", since(fault, right), since(fault, time.Now()))
	await(t, "the new master to be asked by all", func() bool { return stats()["evalsha"] > 100 })
	under.stop(1)
	if under.failed > 0 {
		t.Errorf("%d requests failed, the last with %v", under.failed, under.lastError)
	}
	before := stats()["evalsha"]
	await(t, "the old master to be a replica", func() bool { return isReplica(sentinels.Master) })
	answers(t, s)
	if stats()["evalsha"] == before {
		t.Error("the new master is not asked any more")
	}
}

// TestSentinelStaleMaster lets the old master hang during a failover, and wakes it up afterwards: for some seconds, two
// servers accept writes. The store stays with the one that the sentinels name.
func TestSentinelStaleMaster(t *testing.T) {
	t.Parallel()
	sentinels, _, under := sentinelsUnderLoad(t, brief)
	sentinels.Watch()
	sentinels.Master.Pause()
	fault := time.Now()
	right := awaitMaster(t, sentinels.Replica, "other")
	under.await(100)
	under.report(fault, right)
	sentinels.Master.Resume()
	stale := awaitMaster(t, sentinels.Master, "other") // it executes what it received before this
	stats := commandStats(t, sentinels.Master)
	before := stats()["evalsha"]
	under.await(1000)
	t.Logf("the old master accepts writes again %v after the fault", since(fault, stale))
	if n := stats()["evalsha"] - before; n > 0 {
		t.Errorf("the old master got %d calls, want none", n)
	}
	under.stop(1)
}

// TestSentinelPatientCallers lets the master hang while more callers than workers wait for it without a deadline. They
// do not keep the store from the new master.
func TestSentinelPatientCallers(t *testing.T) {
	t.Parallel()
	sentinels := testenv.Sentinels(t)
	sentinels.Watch()
	s := open(t, redisstore.Config{
		Mode: redisstore.Sentinel, URL: sentinels.Addrs(), WholeDeadline: true, Timeout: 10 * time.Minute,
		DialTimeout: 2 * brief,
	})
	answers(t, s)
	sentinels.Master.Pause()
	callers, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() { take(callers, s, ask("k", perDay(1e6))) }) // its result depends on when it was sent
	}
	await(t, "an answer of the new master", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), brief)
		defer cancel()
		return take(ctx, s, ask("k", perDay(1e6)))[0].Err == nil
	})
	end()
	all.Wait()
	sentinels.Master.Resume()
}

// TestClusterMasterKilled kills a master while requests go on. Its replica takes over its slots, and the store finds it
// there.
func TestClusterMasterKilled(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
	replica := cluster.AddReplica(cluster.Masters[1])
	s := open(t, redisstore.Config{Mode: redisstore.Cluster, URL: cluster.Addrs(), Timeout: brief})
	key := inEach(cluster, "k")[1]
	answers(t, s)
	await(t, "an answer", func() bool { return takeOne(t, s, key, perDay(loadLimit)).Err == nil })
	under := newLoad(t, s, key)
	under.await(100)
	cluster.Masters[1].Kill()
	fault := time.Now()
	right := awaitMaster(t, replica, "other {"+key+"}")
	under.await(100)
	under.stop(1)
	under.report(fault, right)
	for _, n := range s.Nodes() {
		if n.Name == cluster.Masters[1].Addr {
			t.Errorf("the dead master is still asked: %v", s.Nodes())
		}
	}
}

// TestClusterPlannedFailover makes a replica the master while requests go on, as before maintenance. None fails, and no
// count is lost.
func TestClusterPlannedFailover(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t)
	replica := cluster.AddReplica(cluster.Masters[1])
	s := openCluster(t, cluster)
	key := inEach(cluster, "k")[1]
	answers(t, s)
	await(t, "an answer", func() bool { return takeOne(t, s, "other {"+key+"}", perDay(loadLimit)).Err == nil })
	under := newLoad(t, s, key)
	under.await(100)
	fault := time.Now()
	var asked time.Time
	await(t, "the replica to be the master", func() bool {
		if time.Since(asked) > 6*time.Second { // Redis gives up after 5 s
			asked = time.Now()
			do(t, replica, "CLUSTER", "FAILOVER")
		}
		return !isReplica(replica)
	})
	right := awaitMaster(t, replica, "third {"+key+"}")
	await(t, "the old master to be a replica", func() bool { return isReplica(cluster.Masters[1]) })
	under.await(loadLimit)
	under.stop(0)
	under.report(fault, right)
	if under.failed > 0 {
		t.Errorf("%d requests failed, the last with %v", under.failed, under.lastError)
	}
}
