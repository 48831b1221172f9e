package redisstore_test

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// trusting returns a TLS configuration that trusts an authority.
func trusting(a *testenv.Authority) func() *tls.Config {
	return func() *tls.Config { return &tls.Config{RootCAs: a.Pool, MinVersion: tls.VersionTLS12} }
}

// redisTLS returns the options of a Redis that also serves TLS, on a port of its own. Its certificate is for this
// name and 127.0.0.1. Replicas, other nodes of a cluster and sentinels use TLS as well.
func redisTLS(t *testing.T, a *testenv.Authority, name string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	ca, cert, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "cert.key")
	a.Write(t, ca)
	testenv.WriteCertificate(t, a.Issue(t, name, time.Hour), cert, key)
	return []string{
		"--tls-port", testenv.FreePortArg, "--tls-replication", "yes", "--tls-auth-clients", "no",
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca,
	}
}

// TestSentinelTLS reaches sentinels and Redis by TLS only, also after a failover.
func TestSentinelTLS(t *testing.T) {
	t.Parallel()
	authority := testenv.NewAuthority(t)
	sentinels := testenv.Sentinels(t, redisTLS(t, authority, "localhost")...)
	sentinels.Watch()
	cfg := redisstore.Config{
		Mode: redisstore.Sentinel, URL: sentinels.Addrs(), TLS: trusting(authority), Timeout: patient,
	}
	s := open(t, cfg)
	healthy(t, s)
	stats := commandStats(t, sentinels.Replica)
	sentinels.Master.Kill()
	right := awaitMaster(t, sentinels.Replica, "other")
	answers(t, s)
	t.Logf("the store decides at most %v after Redis is right again", since(right, time.Now()))
	if stats()["evalsha"] == 0 {
		t.Error("the new master has not been asked")
	}
	cfg.TLS = trusting(testenv.NewAuthority(t))
	if err := open(t, cfg).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("sentinels with the certificate of another authority: %v", err)
	}
}

// TestClusterTLSHostnames reaches the nodes of a cluster by the name that they announce, which their certificates have.
// A slot that moves is found by that name, too.
func TestClusterTLSHostnames(t *testing.T) {
	t.Parallel()
	authority := testenv.NewAuthority(t)
	cluster := testenv.Cluster(t, append(redisTLS(t, authority, "localhost"), "--tls-cluster", "yes",
		"--cluster-announce-hostname", "localhost", "--cluster-preferred-endpoint-type", "hostname")...)
	var names []string
	for _, m := range cluster.Masters {
		names = append(names, net.JoinHostPort("localhost", m.Option("--tls-port")))
	}
	await(t, "the nodes to know the names of each other", func() bool {
		for _, m := range cluster.Masters {
			slots, err := m.Do("CLUSTER", "SLOTS")
			if err != nil || strings.Count(slots, "localhost") < len(names) {
				return false
			}
		}
		return true
	})
	s := open(t, redisstore.Config{
		Mode: redisstore.Cluster, URL: names[0], TLS: trusting(authority), Timeout: patient,
	})
	if o := take(t.Context(), s, askAll(perDay(10), inEach(cluster, "k")...))[0]; o.Err != nil || !o.Allowed {
		t.Errorf("a request to all nodes: %+v", o)
	}
	moveSlot(t, cluster, s, "{moving}")
	for _, n := range s.Nodes() {
		if !n.Up || !strings.HasPrefix(n.Name, "localhost:") {
			t.Errorf("a node is named %s, up %t, want localhost", n.Name, n.Up)
		}
	}
}

// loopback6 returns ::1, and 127.0.0.1 on a machine without IPv6.
func loopback6(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Logf("this machine has no IPv6, so the test uses 127.0.0.1: %v", err)
		return "127.0.0.1"
	}
	_ = l.Close() // it has no connections
	return "::1"
}

// TestClusterIPv6 reaches the nodes of a cluster by IPv6 addresses. A slot that moves is found at such an address, too.
func TestClusterIPv6(t *testing.T) {
	t.Parallel()
	cluster := testenv.Cluster(t, "--bind", loopback6(t))
	s := openCluster(t, cluster)
	if o := take(t.Context(), s, askAll(perDay(10), inEach(cluster, "k")...))[0]; o.Err != nil || !o.Allowed {
		t.Errorf("a request to all nodes: %+v", o)
	}
	moveSlot(t, cluster, s, "{moving}")
}

// moveSlot moves the slot of a key to another node, and checks that requests follow with ASK and with MOVED.
func moveSlot(t *testing.T, cluster *testenv.RedisCluster, s *redisstore.Store, key string) {
	t.Helper()
	from, to := fromTo(cluster, key)
	expect := func(left int64) {
		t.Helper()
		if o := takeOne(t, s, key, perDay(10)); o.Err != nil || o.Decisions[0].Remaining != left {
			t.Errorf("%+v, want %d left", o, left)
		}
	}
	expect(9)
	cluster.BeginMove(key, from, to)
	expect(8)
	cluster.MoveKey(key, from, to)
	expect(7)
	cluster.EndMove(key, from, to)
	expect(6)
}

// fromTo returns the master of a key and another one.
func fromTo(cluster *testenv.RedisCluster, key string) (from, to *testenv.RedisServer) {
	from = cluster.MasterOf(key)
	if to = cluster.Masters[0]; to == from {
		to = cluster.Masters[1]
	}
	return from, to
}
