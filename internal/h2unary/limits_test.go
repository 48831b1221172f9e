package h2unary_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
)

// TestFloods has a peer for each limit of a connection. The peer gets a GOAWAY, and the reason is counted. Other
// connections are served meanwhile.
func TestFloods(t *testing.T) {
	t.Parallel()
	const calm = "ENHANCE_YOUR_CALM "
	bomb := zipped(100 << 10)
	for _, c := range []struct {
		name   string
		attack func(p *peer, i int) error // the i-th time
		want   string
		reason guard.Reason
	}{
		{"PING", func(p *peer, _ int) error { return p.WritePing(false, [8]byte{}) }, calm + "too_many_pings", guard.Flood},
		{"SETTINGS", func(p *peer, _ int) error { return p.WriteSettings() }, calm + "too many frames", guard.Flood},
		{"PRIORITY", func(p *peer, i int) error {
			return p.WritePriority(uint32(2*i+1), http2.PriorityParam{StreamDep: 2})
		}, calm + "too many frames", guard.Flood},
		{"WINDOW_UPDATE", func(p *peer, _ int) error { return p.WriteWindowUpdate(0, 1) }, calm + "too many frames",
			guard.Flood},
		{"unknown frames", func(p *peer, i int) error {
			return p.WriteRawFrame(http2.FrameType(10+i%240), 0, 0, nil)
		}, calm + "too many frames", guard.Flood},
		{"empty DATA", func(p *peer, i int) error {
			if i == 0 {
				return p.headers(1, echoMethod, false)
			}
			return p.WriteData(1, false, nil)
		}, calm + "too many empty frames", guard.Flood},
		{"DATA of a stream that was reset", func(p *peer, i int) error {
			if i == 0 {
				return errors.Join(p.headers(1, laterMethod, false), p.WriteWindowUpdate(1, 0))
			}
			return p.WriteData(1, false, []byte("x"))
		}, calm + "too much DATA of streams that were reset", guard.Flood},
		{"RST_STREAM of a stream that has ended", func(p *peer, i int) error {
			if i == 0 {
				return p.request(1, echoMethod, "x")
			}
			return p.WriteRSTStream(1, http2.ErrCodeCancel)
		}, calm + "too many resets", guard.Flood},
		{"HEADERS of a stream that was reset", func(p *peer, _ int) error {
			return p.headers(1, echoMethod, true, hpack.HeaderField{Name: "connection", Value: "x"})
		}, calm + "too many HEADERS of streams that are ignored", guard.Flood},
		{"many settings", func(p *peer, _ int) error {
			return p.WriteSettings(make([]http2.Setting, 33)...)
		}, calm + "too many settings", guard.Flood},
		{"CONTINUATION", func(p *peer, i int) error {
			if i == 0 {
				return p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}})
			}
			return p.WriteContinuation(1, false, nil)
		}, calm + "the header block is too large", guard.LargeHeaders},
		{"a block of 64 KiB", func(p *peer, i int) error {
			if i == 0 {
				return p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}})
			}
			return p.WriteContinuation(1, false, bytes.Repeat([]byte{0x83}, 16384))
		}, calm + "the header block is too large", guard.LargeHeaders},
		{"a header that is used again and again", func(p *peer, i int) error {
			return p.headers(uint32(2*i+1), echoMethod, true, repeated(90, "cookie", strings.Repeat("x", 3000))...)
		}, calm + "the headers are too large", guard.LargeHeaders},
		{"many headers", func(p *peer, i int) error {
			return p.headers(uint32(2*i+1), echoMethod, true, repeated(101, "a", "b")...)
		}, calm + "the headers are too large", guard.LargeHeaders},
		{"broken requests, which the server resets", func(p *peer, i int) error {
			id := uint32(2*i + 1)
			if err := p.request(id, laterMethod, "x"); err != nil {
				return err
			}
			return p.WriteWindowUpdate(id, 0)
		}, calm + "too many broken requests", guard.StreamErrors},
		{"malformed requests", func(p *peer, i int) error {
			return p.headers(uint32(2*i+1), echoMethod, true, hpack.HeaderField{Name: "connection", Value: "x"})
		}, calm + "too many broken requests", guard.StreamErrors},
		{"compressed messages that are too large", func(p *peer, i int) error {
			return p.compressed(uint32(2*i+1), bomb)
		}, calm + "too many broken requests", guard.StreamErrors},
		{"compressed messages that are no gzip", func(p *peer, i int) error {
			return p.compressed(uint32(2*i+1), "x")
		}, calm + "too many broken requests", guard.StreamErrors},
		{"streams beyond the limit", func(p *peer, i int) error {
			return p.request(uint32(2*i+1), laterMethod, "x")
		}, calm + "too many broken requests", guard.TooManyStreams},
		{"DATA of no stream", func(p *peer, _ int) error { return p.WriteData(1, true, nil) },
			"PROTOCOL_ERROR DATA of no stream", guard.Protocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, func(cfg *h2unary.Config) { cfg.MaxStreams = 2000 }, nil)
			p := connect(t, s)
			p.AllowIllegalWrites = true
			go func() { // ends when the server closes the connection
				for i := range 100_000 {
					if c.attack(p, i) != nil {
						return
					}
				}
				// The server has not stopped it, or it has still to read what the sockets hold, and then to answer.
				_ = p.conn.(*net.TCPConn).CloseWrite()
			}()
			if got := p.goAway(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if s.Cuts(c.reason) == 0 {
				t.Errorf("%v is not counted", c.reason)
			}
			if got := exchange(connect(t, s)); got != "x" {
				t.Errorf("another connection: %q", got)
			}
		})
	}
}

func exchange(p *peer) string {
	if err := p.request(1, echoMethod, "x"); err != nil {
		return err.Error()
	}
	return p.answer(1)
}

func repeated(n int, name, value string) (all []hpack.HeaderField) {
	for range n {
		all = append(all, hpack.HeaderField{Name: name, Value: value})
	}
	return all
}

// bubble starts a server in a bubble of synctest.
func bubble(t *testing.T, change func(*h2unary.Config)) *server {
	t.Helper()
	return startOn(t, newPipes(), change, nil)
}

// TestTimeLimits has a peer for each time limit.
func TestTimeLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		attack func(p *peer) error
		want   string
		reason guard.Reason
	}{
		{"a request without an end", func(p *peer) error { return p.headers(1, echoMethod, false) }, "reset CANCEL",
			guard.SlowRequest},
		{"an answer for which there is no window", func(p *peer) error {
			if err := p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 2}); err != nil {
				return err
			}
			return p.request(1, echoMethod, "x")
		}, "reset CANCEL", guard.SlowAnswer},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t, nil)
				p := connect(t, s)
				go func() { _ = c.attack(p) }() // the answer shows it
				begin := time.Now()
				if got := p.answer(1); got != c.want {
					t.Errorf("got %q, want %q", got, c.want)
				}
				if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
					t.Errorf("after %v, want 10 s", took)
				}
				if s.Cuts(c.reason) != 1 {
					t.Errorf("%v is not counted", c.reason)
				}
			})
		})
	}
}

// TestConnectionTimeLimits has a peer for each reason to close a connection for its time. What an attacker does is
// counted.
func TestConnectionTimeLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		handshake bool
		reads     bool
		attack    func(p *peer)
		after     time.Duration
		counted   []guard.Reason
	}{
		{"no preface", false, true, func(*peer) {}, 5 * time.Second, []guard.Reason{guard.SlowRequest}},
		{"a preface byte by byte", false, true, func(p *peer) {
			for i := range len(http2.ClientPreface) {
				time.Sleep(time.Second)
				if _, err := p.conn.Write([]byte(http2.ClientPreface)[i : i+1]); err != nil {
					return
				}
			}
		}, 5 * time.Second, []guard.Reason{guard.SlowRequest}},
		{"a frame byte by byte", true, true, func(p *peer) {
			frame := append([]byte{0, 0, 50, 6, 0, 0, 0, 0, 0}, make([]byte, 50)...)
			for i := range frame {
				if _, err := p.conn.Write(frame[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}, 10 * time.Second, []guard.Reason{guard.SlowRequest}},
		{"a header block in slow frames", true, true, func(p *peer) {
			err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x83}})
			for ; err == nil; time.Sleep(3 * time.Second) {
				err = p.WriteContinuation(1, false, []byte{0x83})
			}
		}, 10 * time.Second, []guard.Reason{guard.SlowRequest}},
		{"silence, without an answer to PING", true, true, func(*peer) {}, 5*time.Minute + 20*time.Second, nil},
		{"answers that are not read", true, false, func(p *peer) {
			for i := range 100 {
				if p.request(uint32(2*i+1), echoMethod, "x") != nil {
					return
				}
			}
		}, 10 * time.Second, []guard.Reason{guard.SlowAnswer}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t, nil)
				var p *peer
				if c.handshake {
					p = connect(t, s)
				} else {
					p = &peer{conn: s.Listener.Listener.(*pipeListener).dial()}
				}
				begin := time.Now()
				go c.attack(p)
				if c.reads {
					go func() { _, _ = io.Copy(io.Discard, p.conn) }() // ends with the connection
				}
				for s.Connections() > 0 {
					time.Sleep(50 * time.Millisecond)
				}
				if took := time.Since(begin); took < c.after || took > c.after+2*time.Second {
					t.Errorf("closed after %v, want %v", took, c.after)
				}
				var counted []guard.Reason
				for r := range guard.Reasons {
					if s.Cuts(r) > 0 {
						counted = append(counted, r)
					}
				}
				if !slices.Equal(counted, c.counted) {
					t.Errorf("counted: %v, want %v", counted, c.counted)
				}
				_ = p.conn.Close()
				time.Sleep(time.Minute) // for the attack to find out
			})
		})
	}
}

// TestSlowReader checks that a client that does not read delays no other, and that its answers are bounded. So it is
// if one goroutine answers the requests of all clients.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	for _, method := range []string{echoMethod, queueMethod} {
		t.Run(method[1:], func(t *testing.T) {
			t.Parallel()
			checkSlowReader(t, method)
		})
	}
}

func checkSlowReader(t *testing.T, method string) {
	s := start(t, nil, nil)
	slow := connect(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
	if err := slow.WriteWindowUpdate(0, 1<<30); err != nil {
		t.Fatal(err)
	}
	written := make(chan int, 1)
	go func() {
		message := strings.Repeat("x", 16000)
		_ = slow.conn.SetWriteDeadline(time.Now().Add(2 * time.Second)) // the server stops to read
		for i := range 100_000 {
			if slow.request(uint32(2*i+1), method, message) != nil {
				written <- i
				return
			}
		}
		written <- 100_000
	}()
	fast := connect(t, s)
	for i := range 1000 {
		id := uint32(2*i + 1)
		if err := fast.request(id, method, "x"); err != nil {
			t.Fatal(err)
		}
		if got := fast.answer(id); got != "x" {
			t.Fatalf("the fast client got %q", got)
		}
	}
	if n := <-written; n == 100_000 {
		t.Error("the server has taken 1.6 GB of requests of a client that reads no answer")
	}
}

// TestUnsentAnswers checks that the server stops to read requests of a client that reads no answers, also if another
// goroutine waits for that client.
func TestUnsentAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t, nil)
		p := connect(t, s, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		if err := errors.Join(p.WriteWindowUpdate(0, 1<<30), p.request(1, pauseMethod, "x")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second) // the goroutine that has answered it waits
		const size = 1000
		message, taken := strings.Repeat("x", size), 0
		for ; p.request(uint32(2*taken+3), echoMethod, message) == nil; taken++ {
		}
		if got := taken * size; got > 200<<10 {
			t.Errorf("%d bytes of requests were taken", got)
		}
		_ = p.conn.Close()
		synctest.Wait()
	})
}
