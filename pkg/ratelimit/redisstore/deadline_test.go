package redisstore

import (
	"errors"
	"net"
	"testing"
	"time"
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
		cfg, now, caller := c.cfg.withDefaults(), time.Now(), time.Time{}
		if c.caller != 0 {
			caller = now.Add(c.caller)
		}
		if got := cfg.bound().end(now, caller, c.caller != 0).Sub(now); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestReplyAndTimer has a timer that has fired. A reply that has arrived is taken, also if no worker has read it.
func TestReplyAndTimer(t *testing.T) {
	fired := func() (*call, *deadline) {
		c := newCall(time.Now(), 1, 1)
		c.send()
		d := &deadline{ctx: t.Context(), timer: time.NewTimer(0)}
		t.Cleanup(func() { d.timer.Stop() })
		return c, d
	}
	t.Run("both are ready", func(t *testing.T) {
		for range 100 { // a select takes one at random
			c, d := fired()
			c.done <- struct{}{}
			if !d.await(c, &node{}) {
				t.Fatal("the timer was taken")
			}
		}
	})
	t.Run("the reply is unread", func(t *testing.T) {
		n, server := connected(t)
		reply(t, n, server)
		c, d := fired()
		d.passed = true
		d.timer.Reset(time.Hour) // time enough for the worker
		go func() { c.done <- struct{}{} }()
		if !d.await(c, n) {
			t.Error("the timer was taken")
		}
	})
	t.Run("the reply stays unread", func(t *testing.T) {
		n, server := connected(t)
		reply(t, n, server)
		c, d := fired()
		for range 2 { // several calls of one caller
			if d.await(c, n) {
				t.Error("an answer that no worker has given")
			}
		}
	})
	t.Run("no reply", func(t *testing.T) {
		n, _ := connected(t)
		c, d := fired()
		d.passed = true
		d.timer.Reset(time.Hour) // it is not awaited
		if d.await(c, n) {
			t.Error("an answer without a reply")
		}
	})
	t.Run("the reply is for an earlier call", func(t *testing.T) {
		n, server := connected(t)
		reply(t, n, server)
		c, d := newCall(time.Now(), 1, 1), &deadline{ctx: t.Context(), timer: time.NewTimer(time.Hour), passed: true}
		if d.await(c, n) {
			t.Error("an answer before the call was sent")
		}
		if err := c.giveUp(); !errors.Is(err, ErrTooLate) {
			t.Errorf("got %v, want ErrTooLate", err)
		}
	})
}

// connected returns a node with one connection, and the other end of it.
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
	added := n.links.add(conn)
	t.Cleanup(func() { _, _ = added.Close(), server.Close() })
	return n, server
}
