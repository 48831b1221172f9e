package h2unary_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestPartialMessages sends messages of 1 MiB without their last byte. The largest are reset as soon as a connection
// has 4 MiB of them.
func TestPartialMessages(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	p := connect(t, s)
	message := prefixed(strings.Repeat("x", 1<<20))
	go func() { // ends with the connection
		for id := uint32(1); id < 20; id += 2 {
			if p.headers(id, echoMethod, false) != nil {
				return
			}
			for rest := message[:len(message)-1]; len(rest) > 0; {
				n := min(16384, len(rest))
				if p.WriteData(id, false, rest[:n]) != nil {
					return
				}
				rest = rest[n:]
			}
		}
	}()
	for {
		f, ok := p.next().(*http2.RSTStreamFrame)
		if !ok {
			continue
		}
		if f.ErrCode != http2.ErrCodeEnhanceYourCalm || s.Cuts(guard.OverBudget) == 0 {
			t.Errorf("got %v, and %d are counted", f.ErrCode, s.Cuts(guard.OverBudget))
		}
		return
	}
}

// TestNothingAfterAnError sends a request after a frame that breaks the connection. The request is not served, but the
// one before it is.
func TestNothingAfterAnError(t *testing.T) {
	t.Parallel()
	s := start(t, nil, nil)
	p := connect(t, s)
	together, flush := p.together()
	if err := errors.Join(together.request(1, stuckMethod, "x"), together.WriteData(99, true, nil),
		together.request(3, stuckMethod, "x"), flush()); err != nil {
		t.Fatal(err)
	}
	if got := p.goAway(); got != "PROTOCOL_ERROR DATA of no stream" {
		t.Errorf("got %q", got)
	}
	if got := s.begun.Load(); got != 1 {
		t.Errorf("%d requests were served, want 1", got)
	}
	close(s.release)
}

// TestOtherProtocols sends what is not HTTP/2, also the request for an upgrade to it. The connection ends at once.
func TestOtherProtocols(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{
		"GET / HTTP/1.1\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n\r\n",
		"PRI * HTTP/1.1\r\n\r\n", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03", "PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n",
	} {
		s := start(t, nil, nil)
		conn := s.dial(t)
		if _, err := io.WriteString(conn, sent); err != nil {
			t.Fatal(err)
		}
		p := &peer{TB: t, Framer: http2.NewFramer(conn, conn)}
		if got := p.goAway(); got != "PROTOCOL_ERROR no preface of HTTP/2" || s.Cuts(guard.Protocol) == 0 {
			t.Errorf("%q: got %q, and %d are counted", sent, got, s.Cuts(guard.Protocol))
		}
	}
}

// TestGrace ends the connection of a client that goes on, though it was asked to leave. The connection ends after the
// grace, even while calls are in flight, and even if the client does not answer the last PING.
func TestGrace(t *testing.T) {
	t.Parallel()
	const age, grace = time.Minute, 20 * time.Second
	for _, answers := range []bool{false, true} {
		t.Run(fmt.Sprintf("it answers PING: %v", answers), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t, func(c *h2unary.Config) { c.MaxAge, c.MaxAgeGrace = age, grace })
				p := connect(t, s)
				if err := p.request(1, stuckMethod, "x"); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				for {
					f, err := p.ReadFrame()
					if err != nil {
						break
					}
					if ping, ok := f.(*http2.PingFrame); ok && answers {
						go func() { _ = p.WritePing(true, ping.Data) }() // an error shows in the next read
					}
				}
				if took := time.Since(begin); took < age*9/10+grace || took > age*11/10+grace+time.Second {
					t.Errorf("closed after %v, want %v", took, age+grace)
				}
				close(s.release)
				synctest.Wait()
			})
		})
	}
}

// TestBegunRequests begins requests without a message. The guard counts them, and the headers that are kept, which are
// short on the wire.
func TestBegunRequests(t *testing.T) {
	t.Parallel()
	const requests, header, most = 1000, 3000, 4096
	for _, c := range []struct {
		name string
		more []hpack.HeaderField
		want int64 // of each request
	}{
		{"usual headers", nil, 400},
		{"headers that are kept", repeated(20, "kept", strings.Repeat("x", header)), header},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(cfg *h2unary.Config) { cfg.Keep = []string{"kept"} }, nil)
			p := connect(t, s)
			for i := range requests {
				if err := p.headers(uint32(2*i+1), echoMethod, false, c.more...); err != nil {
					t.Fatal(err)
				}
			}
			testenv.Eventually(t, func() error {
				if held := s.Held(); held < requests*c.want || held > requests*(c.want+most) {
					return fmt.Errorf("%d bytes", held)
				}
				return nil
			}, "the requests to count")
			_ = p.conn.Close()
			testenv.Eventually(t, func() error {
				if held := s.Held(); held != 0 {
					return fmt.Errorf("%d bytes", held)
				}
				return nil
			}, "nothing to count when the client has gone")
		})
	}
}

// TestManyCompressedMessages sends a hundred compressed messages at once, which are a thousand times larger when they
// are decided. At any time, a connection has few of them in memory.
func TestManyCompressedMessages(t *testing.T) {
	t.Parallel()
	const messages, size = 100, 60 << 10
	var largest atomic.Int64
	s := start(t, func(cfg *h2unary.Config) {
		cfg.Serve = func(_ *h2unary.Conn, calls []*h2unary.Call) {
			batch := int64(0)
			for _, k := range calls {
				batch += int64(len(k.Message))
				k.Reply(nil)
			}
			largest.Store(max(largest.Load(), batch))
		}
	}, nil)
	p := connect(t, s)
	together, flush := p.together()
	for i := range messages {
		if err := together.compressed(uint32(2*i+1), zipped(size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := flush(); err != nil {
		t.Fatal(err)
	}
	if got := p.answer(2*messages - 1); got != "" {
		t.Errorf("got %q", got)
	}
	if got := largest.Load(); got != size {
		t.Errorf("Serve got %d bytes at once, want %d", got, size)
	}
}

// zipped returns a compressed message of zeros.
func zipped(size int) string {
	var content bytes.Buffer
	w := gzip.NewWriter(&content)
	_, _ = w.Write(make([]byte, size)) // to memory
	_ = w.Close()
	return content.String()
}

// compressed sends a whole request with a compressed message.
func (p *peer) compressed(id uint32, content string) error {
	message := prefixed(content)
	message[0] = 1
	return errors.Join(p.headers(id, echoMethod, false, hpack.HeaderField{Name: "grpc-encoding", Value: "gzip"}),
		p.WriteData(id, true, message))
}

// TestLateMessages begins requests whose messages arrive after their grpc-timeout, or never. They are answered with
// DEADLINE_EXCEEDED, at the latest at the next sweep, and are not served. A request whose message is in time is served.
func TestLateMessages(t *testing.T) {
	t.Parallel()
	const timeout, sweep = 150 * time.Millisecond, 100 * time.Millisecond
	for _, c := range []struct {
		name, method, want string
		after              time.Duration // of the message; 0: it never arrives
		earliest           time.Duration
	}{
		{"no message", echoMethod, "status 4", 0, timeout},
		{"no message of a stream", watchMethod, "status 4", 0, timeout},
		{"a message at the deadline", echoMethod, "status 4", timeout, timeout},
		{"a message before the deadline", echoMethod, "x", timeout - time.Millisecond, timeout - time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t, nil)
				p := connect(t, s)
				begin := time.Now()
				field := hpack.HeaderField{Name: "grpc-timeout", Value: "150m"}
				if err := p.headers(1, c.method, false, field); err != nil {
					t.Fatal(err)
				}
				go func() {
					if c.after > 0 {
						time.Sleep(c.after)
						_ = p.WriteData(1, true, prefixed("x")) // the answer shows it
					}
				}()
				if got := p.answer(1); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if took := time.Since(begin); took < c.earliest || took > c.earliest+sweep {
					t.Errorf("after %v, want %v", took, c.earliest)
				}
				if got := s.Cuts(guard.SlowRequest); got != 0 {
					t.Errorf("%d requests count as slow", got)
				}
				_ = p.conn.Close()
				synctest.Wait()
			})
		})
	}
}
