package h2unary_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
)

// TestUsualClients has clients that stay below the limits of TestFloods for a long time. The server keeps their
// connections.
func TestUsualClients(t *testing.T) {
	t.Parallel()
	forbidden := hpack.HeaderField{Name: "connection", Value: "x"}
	for _, c := range []struct {
		name string
		send func(p *peer) error
	}{
		{"two WINDOW_UPDATE and a PING with each request", func(p *peer) (err error) {
			for i := range 3000 {
				id := uint32(2*i + 1)
				err = errors.Join(err, p.request(id, echoMethod, "x"), p.WriteWindowUpdate(0, 1), p.WriteWindowUpdate(0, 1),
					p.WritePing(false, [8]byte{}))
			}
			return err
		}},
		{"50 PING a second for a minute, without requests", func(p *peer) (err error) {
			for range 3000 {
				err = errors.Join(err, p.WritePing(false, [8]byte{}))
				time.Sleep(20 * time.Millisecond)
			}
			return err
		}},
		{"60 broken requests a minute for three minutes", func(p *peer) (err error) {
			for i := range 180 {
				err = errors.Join(err, p.headers(uint32(2*i+1), echoMethod, true, forbidden))
				time.Sleep(time.Second)
			}
			return err
		}},
		{"900 rapid resets a minute for three minutes", func(p *peer) (err error) {
			for i := range 2700 {
				id := uint32(2*i + 1)
				err = errors.Join(err, p.request(id, laterMethod, "x"), p.WriteRSTStream(id, http2.ErrCodeCancel))
				time.Sleep(time.Minute / 900)
			}
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			staysOpen(t, func(p *peer) {
				if err := c.send(p); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStreamsBeforeTheAck begins more requests than the server allows. Until the client has acknowledged the settings
// of the server, it may not know the limit, so the server accepts all of them.
func TestStreamsBeforeTheAck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const most, begun = 2, 13
		s := bubble(t, func(c *h2unary.Config) { c.MaxStreams = most })
		p := greet(t, s)
		id := uint32(1)
		for ; id < 2*begun; id += 2 {
			if err := p.request(id, laterMethod, "x"); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.WritePing(false, [8]byte{}); err != nil {
			t.Fatal(err)
		}
		if f, ok := p.next().(*http2.PingFrame); !ok {
			t.Errorf("before the ACK: got %v, want only the answer to PING", f)
		}
		if err := errors.Join(p.WriteSettingsAck(), p.headers(id, laterMethod, true)); err != nil {
			t.Fatal(err)
		}
		if got := p.answer(id); got != "reset REFUSED_STREAM" || s.Cuts(guard.TooManyStreams) != 1 {
			t.Errorf("after the ACK: %q, and %d are counted", got, s.Cuts(guard.TooManyStreams))
		}
		_ = p.conn.Close()
		synctest.Wait()
	})
}
