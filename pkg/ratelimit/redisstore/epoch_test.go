package redisstore_test

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestEpoch checks what begins an epoch of a Redis: all that may have cost it a state, and nothing else.
func TestEpoch(t *testing.T) {
	for name, c := range map[string]struct {
		user string // what the user may not do
		do   func(t *testing.T, s *redisstore.Store, server *testenv.RedisServer)
		same bool
	}{
		"nothing": {do: func(*testing.T, *redisstore.Store, *testenv.RedisServer) {}, same: true},
		"other connections to the same server": {
			do:   endConnections,
			same: true,
		},
		"a server that does not tell who it is": {
			user: "-info",
			do:   endConnections,
		},
		"a script that is not known any more": {
			do: func(t *testing.T, _ *redisstore.Store, server *testenv.RedisServer) { do(t, server, "SCRIPT", "FLUSH") },
		},
		"another start of the server": {do: func(_ *testing.T, _ *redisstore.Store, server *testenv.RedisServer) {
			server.Kill()
			server.Restart()
		}},
		"another role": {do: func(t *testing.T, s *redisstore.Store, server *testenv.RedisServer) {
			do(t, server, "REPLICAOF", "127.0.0.1", "1")
			endConnections(t, s, server)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			cfg := redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1}
			if c.user != "" {
				do(t, server, "ACL", "SETUSER", "limited", "on", ">secret", "~*", "+@all", c.user)
				cfg.Username, cfg.Password = "limited", "secret"
			}
			s := open(t, cfg)
			healthy(t, s)
			b := &bucket.Take{Key: "k", Limit: perDay(10)}
			before := s.Epoch(b)
			if before == 0 {
				t.Fatal("no epoch")
			}
			c.do(t, s, server)
			takeOne(t, s, "k", perDay(10))
			if after := s.Epoch(b); (after == before) != c.same {
				t.Errorf("the epoch was %d and is %d", before, after)
			}
		})
	}
}

// endConnections has the server close the store's connections, and waits until the store has noticed that.
func endConnections(t *testing.T, s *redisstore.Store, server *testenv.RedisServer) {
	t.Helper()
	do(t, server, "CLIENT", "KILL", "TYPE", "normal")
	await(t, "the connections to end", func() bool { return s.Connected() == 0 })
}

func do(t *testing.T, server *testenv.RedisServer, words ...string) {
	t.Helper()
	if _, err := server.Do(words...); err != nil {
		t.Fatal(err)
	}
}

// TestEpochOfOutage checks that an outage begins an epoch, although the same server then answers.
func TestEpochOfOutage(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: brief})
	answers(t, s)
	b := &bucket.Take{Key: "k", Limit: perDay(10)}
	before := s.Epoch(b)
	server.Pause()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	server.Resume()
	answers(t, s)
	if after := s.Epoch(b); after == before {
		t.Errorf("the epoch is %d before and after the outage", after)
	}
}

// TestEpochOfEach checks that no two Redis have an epoch of the same number, and that Suspect begins one epoch of one
// Redis in a second.
func TestEpochOfEach(t *testing.T) {
	main, second := testenv.Redis(t), testenv.Redis(t)
	s := open(t, redisstore.Config{URL: main.Addr, PerSecond: &redisstore.Config{URL: second.Addr}})
	inMain, inSecond := &bucket.Take{Key: "k", Limit: perDay(10)}, &bucket.Take{Key: "k", Limit: perDay(10)}
	inSecond.Limit.Window = 1_000_000
	if a, b := s.Epoch(inMain), s.Epoch(inSecond); a == b {
		t.Errorf("both have the epoch %d", a)
	}
	first, other := s.Epoch(inMain), s.Epoch(inSecond)
	began := time.Now()
	s.Suspect(inMain)
	next := s.Epoch(inMain)
	s.Suspect(inMain)
	if again := s.Epoch(inMain); next == first || again != next && time.Since(began) < time.Second {
		t.Errorf("Suspect began the epochs %d and %d after %d, want one", next, again, first)
	}
	if s.Epoch(inSecond) != other {
		t.Error("Suspect began an epoch of another Redis")
	}
}

// TestEpochInCluster checks that each master has epochs of its own, and that another node for a slot begins one.
func TestEpochInCluster(t *testing.T) {
	cluster := testenv.Cluster(t)
	s := openCluster(t, cluster)
	keys := inEach(cluster, "epoch")
	seen := map[uint64]string{}
	for _, key := range keys {
		takeOne(t, s, key, perDay(10))
		epoch := s.Epoch(&bucket.Take{Key: key, Limit: perDay(10)})
		if other, ok := seen[epoch]; epoch == 0 || ok {
			t.Errorf("%s has the epoch %d, as %q", key, epoch, other)
		}
		seen[epoch] = key
	}
	if err := redisstore.ReplaceNodes(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if epoch := s.Epoch(&bucket.Take{Key: key, Limit: perDay(10)}); epoch == 0 || seen[epoch] != "" {
			t.Errorf("%s has the epoch %d after its node was replaced", key, epoch)
		}
	}
}

// TestConnectionUnused checks that a connection that ends before a script call was sent on it has charged nothing.
func TestConnectionUnused(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for c, err := listener.Accept(); err == nil; c, err = listener.Accept() {
			greet(c)
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-done
	})
	s := open(t, redisstore.Config{URL: listener.Addr().String()})
	if err := takeOne(t, s, "k", perDay(10)).Err; err == nil || errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("a connection that ends at once: %v, want an error of a known outcome", err)
	}
}

// greet answers the greeting of a client, and closes the connection at the next command.
func greet(c net.Conn) {
	defer func() { _ = c.Close() }()
	buf := make([]byte, 1<<12)
	if _, err := c.Read(buf); err != nil {
		return
	}
	if _, err := c.Write([]byte("*2\r\n$5\r\nproto\r\n:2\r\n")); err != nil {
		return
	}
	_, _ = c.Read(buf)
}
