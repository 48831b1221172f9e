package h2unary_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
)

// TestRapidResets resets each of thousands of requests at once, so that the server works for nothing. It ends the
// connection, and counts the reason.
func TestRapidResets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		begin    func(p *peer, id uint32) error
		together bool // with the reset in one read
	}{
		{"whole requests", func(p *peer, id uint32) error { return p.request(id, laterMethod, "x") }, false},
		{"requests without an end", func(p *peer, id uint32) error { return p.headers(id, laterMethod, false) }, false},
		{"streams", func(p *peer, id uint32) error { return p.request(id, watchMethod, "x") }, false},
		{"whole requests in one read", func(p *peer, id uint32) error { return p.request(id, echoMethod, "x") }, true},
		{"headers in one read", func(p *peer, id uint32) error { return p.headers(id, echoMethod, false) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := bubble(t, nil)
				p := connect(t, s)
				from, flush := p, func() error { return nil }
				if c.together {
					from, flush = p.together()
				}
				go func() { // ends when the server closes the connection
					for id := uint32(1); ; id += 2 {
						if errors.Join(c.begin(from, id), from.WriteRSTStream(id, http2.ErrCodeCancel), flush()) != nil {
							return
						}
					}
				}()
				if got := p.goAway(); got != "ENHANCE_YOUR_CALM too many requests are reset at once" {
					t.Errorf("got %q", got)
				}
				if s.Cuts(guard.RapidReset) != 1 {
					t.Error("it is not counted")
				}
				synctest.Wait()
			})
		})
	}
}

// TestSomeRapidResets resets every third of thousands of requests at once, as clients do that lose interest: that is no
// attack.
func TestSomeRapidResets(t *testing.T) {
	t.Parallel()
	staysOpen(t, func(p *peer) {
		for i := range 6000 {
			id, method := uint32(2*i+1), echoMethod
			if i%3 == 0 {
				method = laterMethod
			}
			if err := p.request(id, method, "x"); err != nil {
				t.Fatal(err)
			}
			if i%3 > 0 {
				continue
			}
			if err := p.WriteRSTStream(id, http2.ErrCodeCancel); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestLateResets resets thousands of calls that take longer, as Envoy does while Redis hangs: that is no attack.
func TestLateResets(t *testing.T) {
	t.Parallel()
	staysOpen(t, func(p *peer) {
		id := uint32(1)
		for range 100 {
			begin := id
			for ; id < begin+200; id += 2 {
				if err := p.request(id, laterMethod, "x"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(20 * time.Millisecond)
			for k := begin; k < id; k += 2 {
				if err := p.WriteRSTStream(k, http2.ErrCodeInternal); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// TestResetsWhileNothingIsAnswered resets thousands of calls at once that the server cannot answer for a time, as while
// Redis hangs: the client does not cause that. The calls keep their places until they are answered.
func TestResetsWhileNothingIsAnswered(t *testing.T) {
	t.Parallel()
	staysOpen(t, func(p *peer) {
		for i := range 3000 {
			id := uint32(2*i + 1)
			if err := errors.Join(p.request(id, pauseMethod, "x"), p.WriteRSTStream(id, http2.ErrCodeCancel)); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestResetsWhileStopped resets thousands of requests before the server has read them, as Envoy does if the service
// gets no CPU time: that is no attack. The same resets are one as soon as the server has caught up.
func TestResetsWhileStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t, nil)
		p := connect(t, s)
		ended := make(chan string, 1)
		go func() { ended <- p.goAway() }()
		together, flush := p.together()
		id := uint32(1)
		send := func(requests int) (err error) {
			for range requests {
				err = errors.Join(err, together.request(id, echoMethod, "x"),
					together.WriteRSTStream(id, http2.ErrCodeCancel), flush())
				id += 2
			}
			return err
		}
		s.stopClock()
		time.Sleep(time.Second)
		if err := send(2000); err != nil {
			t.Fatal(err)
		}
		go s.Run(t.Context())
		time.Sleep(200 * time.Millisecond)
		if err := send(2000); err != nil {
			t.Fatal(err)
		}
		if s.Connections() != 1 {
			t.Error("the connection was closed")
		}
		time.Sleep(time.Minute) // resets are counted in a minute
		_ = send(2000)          // until the server closes the connection
		if got := <-ended; got != "ENHANCE_YOUR_CALM too many requests are reset at once" {
			t.Errorf("got %q", got)
		}
		synctest.Wait()
	})
}

// TestResetCallsKeepTheirPlaces resets calls that the server goes on to work on. It begins a bounded number of them.
func TestResetCallsKeepTheirPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t, func(c *h2unary.Config) { c.MaxStreams = 100 })
		p := connect(t, s)
		go func() {
			for id := uint32(1); id < 20_000; id += 2 {
				if errors.Join(p.request(id, stuckMethod, "x"), p.WriteRSTStream(id, http2.ErrCodeCancel)) != nil {
					return
				}
			}
		}()
		go func() { _, _ = io.Copy(io.Discard, p.conn) }() // what the server sends; ends with the connection
		time.Sleep(time.Second)
		const most = 4096 // for a client that cannot see that its calls are still worked on
		if got := s.begun.Load(); got > most {
			t.Errorf("%d calls are worked on, want at most %d", got, most)
		}
		if s.Cuts(guard.TooManyStreams) == 0 {
			t.Error("the others are not counted")
		}
		close(s.release)
		_ = p.conn.Close()
		synctest.Wait()
	})
}

// TestAbandonedCalls ends a connection whose calls the server goes on to work on. They count until they are answered.
func TestAbandonedCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		s := bubble(t, nil)
		p := connect(t, s)
		for i := range calls {
			if err := p.request(uint32(2*i+1), stuckMethod, "x"); err != nil {
				t.Fatal(err)
			}
		}
		_ = p.conn.Close()
		synctest.Wait()
		if got := s.Held(); s.Connections() > 0 || got < calls*1000 {
			t.Errorf("%d connections, and calls hold %d bytes", s.Connections(), got)
		}
		close(s.release)
		synctest.Wait()
		if got := s.Held(); got != 0 {
			t.Errorf("at the end, calls hold %d bytes", got)
		}
	})
}

// staysOpen checks in a synctest bubble that the server does not close the connection of a client that sends something.
func staysOpen(t *testing.T, send func(p *peer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := bubble(t, nil)
		p := connect(t, s)
		go func() {
			for { // what the server sends
				if _, err := p.ReadFrame(); err != nil {
					return
				}
			}
		}()
		send(p)
		time.Sleep(time.Second)
		if s.Connections() != 1 {
			t.Error("the connection was closed")
		}
		_ = p.conn.Close()
		synctest.Wait()
	})
}
