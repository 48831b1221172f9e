package redisstore

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestConnectsAgain has an attempt to connect that hangs, and ends long after the calls that it was made for. A later
// call learns nothing of its error: another attempt succeeds.
func TestConnectsAgain(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	first, ended := true, make(chan struct{})
	addr := testenv.Proxy(t, server.Addr, func() (toServer, fromServer testenv.Pass) {
		hangs := first
		first = false
		pass := func([]byte) bool {
			if hangs {
				<-ended
			}
			return !hangs
		}
		return pass, pass
	})
	n := withoutWorkers(t, addr)
	w := n.lane.worker(n)
	if _, err := w.connect(t.Context(), time.Now().Add(patience)); !errors.Is(err, errConnecting) {
		t.Errorf("got %v, want %v", err, errConnecting)
	}
	close(ended)
	if <-w.attempt.over; w.attempt.err == nil {
		t.Fatal("the first attempt has succeeded")
	}
	made, err := w.connect(t.Context(), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	made.close()
}

// TestConnectsToNewTarget has an attempt that was made for a target that another one has replaced.
func TestConnectsToNewTarget(t *testing.T) {
	t.Parallel()
	n := withoutWorkers(t, testenv.Redis(t).Addr)
	w := n.lane.worker(n)
	for range 10 {
		w.attempt = n.connect(t.Context())
		<-w.attempt.over
		if err := n.use(t.Context(), n.options.Addrs[0]); err != nil {
			t.Fatal(err)
		}
		made, err := w.connect(t.Context(), time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if made.target != n.target.Load() {
			t.Error("the connection leads to the old target")
		}
		made.close()
	}
}

// withoutWorkers returns a node without workers of its own, which ends with the test.
func withoutWorkers(t *testing.T, addr string) *node {
	t.Helper()
	cfg := Config{URL: addr, Timeout: time.Minute, DialTimeout: time.Minute}.withDefaults()
	options, err := cfg.options()
	if err != nil {
		t.Fatal(err)
	}
	cfg.PoolSize, cfg.epochs = 0, new(atomic.Uint64)
	n := newNode(addr, cfg, options, func(error) {})
	t.Cleanup(func() { _ = n.close() })
	return n
}
