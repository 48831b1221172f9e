package redisstore

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
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
	w := &worker{node: n}
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
	w := &worker{node: n}
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
	cfg.PoolSize, cfg.epochs = 0, new(atomic.Uint64)
	k, err := newKeyspace(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n := k.(*node)
	t.Cleanup(func() { _ = n.close() })
	return n
}

// TestNothingSent writes on a connection that takes nothing any more. The call was certainly not charged.
func TestNothingSent(t *testing.T) {
	n, _ := connected(t)
	w := n.lane.workers[0]
	if err := w.link.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	w.in.from = w.link
	r, o := bucket.Request{Takes: []bucket.Take{{Key: "k"}}}, bucket.Outcome{}
	ended := make(chan struct{})
	c := n.newCall(time.Now().Add(time.Minute), func() { close(ended) })
	c.add(&r, &o, scope{})
	n.lane.queue = []*call{c}
	if !n.lane.take(w) {
		t.Fatal("the worker does not get the call")
	}
	w.send()
	if err := w.receive(w.in.fill()); err == nil {
		t.Error("the connection can be used")
	}
	<-ended
	if !errors.Is(o.Err, syscall.EPIPE) || errors.Is(o.Err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("got %v, want %v and no charge", o.Err, syscall.EPIPE)
	}
}
