package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// forger stands between a store and Redis. It changes the answer of Redis to the next script call, or to another
// command.
type forger struct {
	addr  string
	other atomic.Pointer[string] // a word of the other command; nil for script calls
	forge atomic.Pointer[func(to net.Conn, answer []byte)]
}

func newForger(t *testing.T, target string) *forger {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &forger{addr: listener.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for client, err := listener.Accept(); err == nil; client, err = listener.Accept() {
			server, err := net.Dial("tcp", target)
			if err != nil {
				t.Error(err)
				return
			}
			all.Go(func() { p.pass(client, server) })
		}
	})
	t.Cleanup(all.Wait) // the store is closed before
	t.Cleanup(func() { _ = listener.Close() })
	return p
}

// pass passes commands and their replies in turn, as a worker sends them.
func (p *forger) pass(client, server net.Conn) {
	defer func() { _, _ = client.Close(), server.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		word := "EVALSHA"
		if other := p.other.Load(); other != nil {
			word = *other
		}
		called := bytes.Contains(buf[:n], []byte(word))
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
		for { // a long command, such as SCRIPT LOAD, comes in parts
			_ = server.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if n, err = server.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
			if more, _ := client.Read(buf); more > 0 {
				_, _ = server.Write(buf[:more])
			}
			_ = client.SetReadDeadline(time.Time{})
		}
		if err != nil {
			return
		}
		if forge := p.forge.Load(); called && forge != nil && p.forge.CompareAndSwap(forge, nil) {
			(*forge)(client, buf[:n])
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

// TestForgedReplies changes a reply of Redis. The request gets the right error, and the next request the answer to
// itself, over the same connection or another one.
func TestForgedReplies(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	p := newForger(t, server.Addr)
	s := open(t, redisstore.Config{URL: p.addr, Timeout: patient, PoolSize: 1})
	healthy(t, s)
	instead := func(text string) func(net.Conn, []byte) {
		return func(to net.Conn, _ []byte) { _, _ = io.WriteString(to, text) }
	}
	var unknown = func(err error) bool { return errors.Is(err, ratelimit.ErrOutcomeUnknown) }
	refused := func(code string) func(error) bool {
		return func(err error) bool { return redisstore.Reason(err) == code && !unknown(err) }
	}
	cases := map[string]struct {
		forge func(to net.Conn, answer []byte)
		want  func(error) bool
	}{
		"closed": {func(to net.Conn, _ []byte) { _ = to.Close() }, unknown},
		"in pieces": {func(to net.Conn, answer []byte) {
			for i := range answer {
				_, _ = to.Write(answer[i : i+1])
			}
		}, func(err error) bool { return err == nil }},
		"more than asked for": {func(to net.Conn, answer []byte) {
			_, _ = to.Write(append(bytes.Clone(answer), "+OK\r\n"...))
		}, func(err error) bool { return err == nil }},
		"of another call": {func(to net.Conn, answer []byte) {
			answer = bytes.Clone(answer)
			answer[bytes.IndexByte(answer, '\n')+1] ^= 1
			_, _ = to.Write(answer)
		}, unknown},
		"a state that cannot be read": {func(to net.Conn, answer []byte) {
			answer = bytes.Clone(answer)
			answer[len(answer)-len("0\n\r\n")] = '!'
			_, _ = to.Write(answer)
		}, unknown},
		"a text without an answer": {instead("$0\r\n\r\n"), unknown},
		"a status":                 {instead("+OK\r\n"), unknown},
		"a number":                 {instead(":1\r\n"), unknown},
		"nil":                      {instead("$-1\r\n"), unknown},
		"an error in an array":     {instead("*1\r\n-ERR no\r\n"), unknown},
		"a push message of RESP3":  {instead(">2\r\n+invalidate\r\n_\r\n"), unknown},
		"an absurd length":         {instead("$9223372036854775807\r\n"), unknown},
		"no end of the line":       {instead("-" + strings.Repeat("x", 1<<17)), unknown},
		"an error of the script":   {instead("-ERR user_script:1: no\r\n"), unknown},
	}
	for _, code := range []string{"LOADING", "BUSY", "MASTERDOWN", "NOAUTH", "NOPERM", "MOVED", "ASK", "TRYAGAIN"} {
		cases[code] = struct {
			forge func(to net.Conn, answer []byte)
			want  func(error) bool
		}{instead("-" + code + " 1 a:1\r\n"), refused(code)}
	}
	check := func(name string, forge func(net.Conn, []byte), want func(error) bool) {
		before := takeOne(t, s, name, perDay(10))
		p.forge.Store(&forge)
		if err := takeOne(t, s, name, perDay(10)).Err; !want(err) {
			t.Errorf("%s: %v", name, err)
		}
		after := takeOne(t, s, name, perDay(10))
		if before.Err != nil || after.Err != nil || after.Decisions[0].Remaining != 7 {
			t.Errorf("%s: the first request %+v, the next one %+v, want 7 units left", name, before, after)
		}
	}
	for name, c := range cases {
		check(name, c.forge, c.want)
	}
	for length := range 40 {
		check(fmt.Sprint("cut after ", length), func(to net.Conn, answer []byte) {
			_, _ = to.Write(answer[:length])
			_ = to.Close()
		}, unknown)
	}
}

// TestForgedRepliesToLibrary is TestForgedReplies for the commands of the client library.
func TestForgedRepliesToLibrary(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	for _, word := range []string{"hello", "info", "ping", "script"} {
		for _, text := range []string{
			"$9223372036854775807\r\n", "*9000000000000000\r\n", "%4000000000000000\r\n", ">2\r\n", "x\r\n",
			"-" + strings.Repeat("x", 1<<17),
		} {
			p := newForger(t, server.Addr)
			s := open(t, redisstore.Config{URL: p.addr, Timeout: patient, PoolSize: 1})
			forge := func(to net.Conn, _ []byte) { _, _ = io.WriteString(to, text) }
			p.other.Store(&word)
			p.forge.Store(&forge)
			if err := s.Ping(t.Context()); err == nil || redisstore.Reason(err) != "connection" {
				t.Errorf("%s is answered with %.20q: %v", word, text, err)
			}
			if err := s.Ping(t.Context()); err != nil {
				t.Errorf("%s is answered by Redis again: %v", word, err)
			}
			answers(t, s)
		}
	}
}

// TestPingOfReplacedTarget replaces the target while a ping waits for it, as at the start and after a failover. The
// store then closes the connections of the old target. The ping goes on at the new one, and does not open the breaker.
func TestPingOfReplacedTarget(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	p := newForger(t, server.Addr)
	s := open(t, redisstore.Config{URL: p.addr, Timeout: patient})
	healthy(t, s)
	word, replace := "ping", func(net.Conn, []byte) {
		if err := redisstore.ReplaceClient(t.Context(), s, server.Addr); err != nil {
			t.Error(err)
		}
	}
	p.other.Store(&word)
	p.forge.Store(&replace)
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if p.forge.Load() != nil {
		t.Error("the target was not replaced during the ping")
	}
	if err := takeOne(t, s, "k", perDay(1e6)).Err; err != nil {
		t.Error(err)
	}
}

// TestClosedAfterAnswer has a Redis that closes a connection after an answer, as at its end or if an operator kills the
// client. The call that waits for the connection is not lost: it goes over another one.
func TestClosedAfterAnswer(t *testing.T) {
	t.Parallel()
	p := newForger(t, testenv.Redis(t).Addr)
	s := open(t, redisstore.Config{URL: p.addr, Timeout: patient, PoolSize: 1})
	healthy(t, s)
	for i := range 20 {
		key := fmt.Sprint(i)
		forge := func(to net.Conn, answer []byte) {
			_, _ = to.Write(answer)
			_ = to.Close()
		}
		p.forge.Store(&forge)
		answered, gone, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		first, second := make([]bucket.Outcome, 1), make([]bucket.Outcome, 1)
		s.Start(t.Context(), []bucket.Request{ask(key, perDay(10))}, first, func() {
			close(answered)
			<-gone // the goroutine of the worker waits
		})
		<-answered
		await(t, "the connection to end", func() bool { return !s.Quiet() })
		s.Start(t.Context(), []bucket.Request{ask(key, perDay(10))}, second, func() { close(ended) })
		close(gone)
		<-ended
		if first[0].Err != nil || second[0].Err != nil || second[0].Decisions[0].Remaining != 8 {
			t.Fatalf("the first request %+v, the next one %+v, want 8 units left", first[0], second[0])
		}
	}
}

// TestLargeWriteHangs has a Redis that does not read. A batch that does not fit into the buffers of the socket ends in
// time, and does not keep its caller from returning. Then Redis reads again.
func TestLargeWriteHangs(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: 3 * time.Second, PoolSize: 1})
	answers(t, s)
	var r bucket.Request
	long := strings.Repeat("k", 1<<16)
	for i := range 200 { // few, so that a busy machine begins to send them in time
		r.Add(bucket.Take{Key: fmt.Sprint(long, i), Limit: perDay(10), Cost: 1})
	}
	server.Pause()
	if err := take(t.Context(), s, r)[0].Err; !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("got %v, want %v", err, ratelimit.ErrOutcomeUnknown)
	}
	server.Resume()
	answers(t, s)
}

// TestConnectsSlowly has a Redis behind a proxy that passes nothing until the first request has ended. The request was
// not sent, so it has charged nothing. A later one uses the connection that the first one has begun.
func TestConnectsSlowly(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	ended := make(chan struct{})
	var connections atomic.Int64
	addr := testenv.Proxy(t, server.Addr, func() (toServer, fromServer testenv.Pass) {
		connections.Add(1)
		pass := func([]byte) bool {
			<-ended
			return true
		}
		return pass, pass
	})
	s := open(t, redisstore.Config{URL: addr, Timeout: patient, DialTimeout: patient, PoolSize: 1})
	ctx, cancel := context.WithTimeout(t.Context(), brief)
	defer cancel()
	if err := take(ctx, s, ask("k", perDay(10)))[0].Err; !errors.Is(err, redisstore.ErrTooLate) {
		t.Errorf("got %v, want %v", err, redisstore.ErrTooLate)
	}
	close(ended)
	if o := takeOne(t, s, "k", perDay(10)); o.Err != nil || o.Decisions[0].Remaining != 9 {
		t.Errorf("the next request: %+v, want 9 units left", o)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}
