package redisstore

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// TestBound checks how long an operation may take.
func TestBound(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		cfg    Config
		caller time.Duration // 0: without a deadline
		want   time.Duration
	}{
		{"nothing is set", Config{}, 0, 50 * ms},
		{"Envoy's default for ratelimit", Config{}, 20 * ms, 15 * ms},
		{"Envoy's default for ext_authz", Config{}, 200 * ms, 50 * ms},
		{"the margin decides", Config{}, 54 * ms, 49 * ms},
		{"less than the margin is left", Config{}, 4 * ms, -ms},
		{"set", Config{Timeout: 10 * ms}, 0, 10 * ms},
		{"set, the caller waits longer", Config{Timeout: 10 * ms}, 20 * ms, 10 * ms},
		{"set, the caller waits less", Config{Timeout: 18 * ms}, 20 * ms, 15 * ms},
		{"set to more than the default", Config{Timeout: time.Second}, 0, time.Second},
		{"set to more than the default, the caller waits less", Config{Timeout: time.Second}, 200 * ms, 195 * ms},
		{"whole deadline, without one", Config{WholeDeadline: true}, 0, 10 * time.Second},
		{"whole deadline", Config{WholeDeadline: true}, 20 * ms, 20 * ms},
		{"whole deadline, a long one", Config{WholeDeadline: true}, 3 * time.Second, 3 * time.Second},
		{"whole deadline, set", Config{WholeDeadline: true, Timeout: 10 * ms}, 20 * ms, 10 * ms},
		{"whole deadline, set, the caller waits less", Config{WholeDeadline: true, Timeout: 30 * ms}, 20 * ms, 20 * ms},
	} {
		cfg, ctx, now := c.cfg.withDefaults(), t.Context(), time.Now()
		if c.caller != 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, now.Add(c.caller))
			defer cancel()
		}
		if got := cfg.end(ctx, now).Sub(now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// errAnswered is the answer of a worker in TestReplyAndTimer.
var errAnswered = errors.New("the answer of a worker")

// TestReplyAndTimer has a timer that has fired. A reply that has arrived is taken, also if no worker has read it.
func TestReplyAndTimer(t *testing.T) {
	// newCall returns a call, and a function that waits for its end.
	newCall := func(n *node) (*call, func() error) {
		done := make(chan struct{})
		r, o := bucket.Request{Takes: []bucket.Take{{Key: "k"}}}, bucket.Outcome{}
		c := n.newCall(time.Now(), func() { close(done) })
		c.add(&r, &o, scope{})
		c.chunks[0].err = errAnswered
		return c, func() error {
			<-done
			return o.Err
		}
	}
	unread := func(t *testing.T) *node {
		n, server := connected(t)
		arrive(t, n, server)
		return n
	}
	t.Run("the reply is first", func(t *testing.T) {
		c, end := newCall(new(node))
		c.send()
		c.answer()
		c.timeOut()
		if err := end(); !errors.Is(err, errAnswered) {
			t.Errorf("got %v, want %v", err, errAnswered)
		}
	})
	t.Run("the reply is unread", func(t *testing.T) {
		c, end := newCall(unread(t))
		c.send()
		c.timeOut()
		c.expire()     // its caller has gone, too
		c.timer.Stop() // a busy machine may take longer than grace
		c.answer()
		if err := end(); !errors.Is(err, errAnswered) {
			t.Errorf("got %v, want %v", err, errAnswered)
		}
	})
	t.Run("the reply stays unread", func(t *testing.T) {
		c, end := newCall(unread(t))
		c.send()
		c.timeOut()
		if err := end(); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("got %v, want %v", err, ratelimit.ErrOutcomeUnknown)
		}
		c.answer() // too late: the outcome belongs to the caller
	})
	t.Run("no reply", func(t *testing.T) {
		n, _ := connected(t)
		c, end := newCall(n)
		c.send()
		c.timeOut()
		if err := end(); !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("got %v, want %v", err, ratelimit.ErrOutcomeUnknown)
		}
	})
	t.Run("the reply is for an earlier call", func(t *testing.T) {
		c, end := newCall(unread(t))
		c.timeOut()
		if err := end(); !errors.Is(err, ErrTooLate) {
			t.Errorf("got %v, want %v", err, ErrTooLate)
		}
		if c.send() {
			t.Error("a call that has ended is sent")
		}
	})
	t.Run("a settling call", func(t *testing.T) {
		c, end := newCall(new(node))
		c.settling = true
		c.timeOut()
		if err := end(); !errors.Is(err, ErrTooLate) {
			t.Errorf("got %v, want %v", err, ErrTooLate)
		}
		if !c.send() {
			t.Error("it is not sent")
		}
		c.answer()
	})
}

// TestSlowReply has a call that takes failureTime. Its node is unavailable, unless the process had no CPU: a reply has
// arrived that nothing has read, or the timer fires late.
func TestSlowReply(t *testing.T) {
	trips := func(arrived bool, late time.Duration) bool {
		n, server := connected(t)
		n.breaker.changed = func(error) {}
		if arrived {
			arrive(t, n, server)
		}
		n.slow(time.Now().Add(-failureTime - late))
		return n.breaker.open()
	}
	if !trips(false, 0) {
		t.Error("no reply has arrived, and the breaker is closed")
	}
	if trips(true, 0) {
		t.Error("a reply has arrived, and the breaker is open")
	}
	if trips(false, failureTime) {
		t.Error("the timer is late, and the breaker is open")
	}
}

// connected returns a node whose worker has a connection, and the other end of it.
func connected(t *testing.T) (*node, net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	n := new(node)
	n.lane.workers = []*worker{{node: n, connection: connection{link: linkOf(newLink(conn, bound{most: mostBytes}))}}}
	t.Cleanup(func() { _, _ = conn.Close(), server.Close() })
	return n, server
}
