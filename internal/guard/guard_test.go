package guard_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/test/testenv"
)

// pipes is a listener whose connections are pipes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) { return <-p, nil }
func (pipes) Close() error                { return nil }
func (pipes) Addr() net.Addr              { return &net.TCPAddr{} }

// from is a connection from an address.
type from struct {
	net.Conn
	address string
}

func (f from) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.address), Port: 1} }

// port is a guarded port in a bubble.
type port struct {
	*testing.T
	listener *guard.Listener
	pipes    pipes
	client   *tls.Config // nil without TLS
}

func newPort(t *testing.T, cfg guard.Config) *port {
	p := &port{T: t, pipes: make(pipes, 1)}
	p.listener = guard.New(p.pipes, cfg)
	go p.listener.Run(t.Context())
	return p
}

// newTLSPort is newPort with TLS below the guard.
func newTLSPort(t *testing.T, cfg guard.Config) *port {
	ca := testenv.NewAuthority(t)
	p := &port{T: t, pipes: make(pipes, 1), client: &tls.Config{RootCAs: ca.Pool, ServerName: "127.0.0.1"}}
	server := &tls.Config{Certificates: []tls.Certificate{ca.Issue(t, "spiffe://example.org/a", 24*time.Hour)}}
	p.listener = guard.New(tls.NewListener(p.pipes, server), cfg)
	go p.listener.Run(t.Context())
	return p
}

// owner is the server's side of a connection. It has one request, of which it cuts what the guard needs.
type owner struct {
	*guard.Conn
	held, cut int64
	closed    atomic.Bool // for the client
}

// Cut implements guard.Owner.
func (o *owner) Cut(need int64) (freed, leaving int64) {
	freed = min(need, o.held)
	o.held -= freed
	o.cut += freed
	return freed, 0
}

// Sweep implements guard.Owner.
func (*owner) Sweep(time.Time) {}

func (o *owner) hold(n int64) {
	o.held += n
	o.Account(guard.Change{Staying: n, Requests: 1})
}

// connect makes a connection from an address, whose client reads all.
func (p *port) connect(address string) *owner {
	p.Helper()
	near, far := net.Pipe()
	p.pipes <- from{far, address}
	c, err := p.listener.Accept()
	p.did(err)
	p.Cleanup(func() { _, _ = near.Close(), c.Close() })
	o := &owner{Conn: c.(*guard.Conn)}
	o.Attach(o)
	go func() {
		_, _ = io.Copy(io.Discard, near)
		o.closed.Store(true)
	}()
	return o
}

func (p *port) did(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// TestStuckWrite checks that the connection of a client that reads nothing is closed.
func TestStuckWrite(t *testing.T) {
	for _, cfg := range []guard.Config{{Metered: true}, {Metered: false}} {
		synctest.Test(t, func(t *testing.T) {
			cfg.Connections, cfg.Bytes = 9, 1<<20
			p := newPort(t, cfg)
			near, far := net.Pipe()
			defer near.Close()
			p.pipes <- from{far, "192.0.2.1"}
			c, err := p.listener.Accept()
			p.did(err)
			begin := time.Now()
			if _, err := c.Write(make([]byte, 100)); err == nil {
				t.Error("it was written")
			}
			if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("closed after %v, want 10 s", took)
			}
			p.did(c.Close())
			if n, held := p.listener.Connections(), p.listener.Held(); n != 0 || held != 0 {
				t.Errorf("%d connections hold %d bytes, want none", n, held)
			}
		})
	}
}

// TestStuckWriteOverTLS checks that the connection of a client that reads nothing is closed at once, also within a
// handshake, although the end of TLS is a message to the client.
func TestStuckWriteOverTLS(t *testing.T) {
	for _, handshake := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newTLSPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, Metered: true})
			near, far := net.Pipe()
			defer near.Close()
			p.pipes <- from{far, "192.0.2.1"}
			c, err := p.listener.Accept()
			p.did(err)
			if handshake {
				go func() { _, _ = c.Read(make([]byte, 1)) }() // until c is closed
				p.did(tls.Client(near, p.client).HandshakeContext(t.Context()))
			}
			begin := time.Now()
			if _, err := c.Write(make([]byte, 1<<20)); err == nil {
				t.Error("it was written")
			}
			if took := time.Since(begin); took < 10*time.Second || took > 11*time.Second {
				t.Errorf("closed after %v, want 10 s", took)
			}
			begin = time.Now()
			p.did(c.Close())
			if took := time.Since(begin); took != 0 {
				t.Errorf("the server waited %v for Close", took)
			}
			if n, held := p.listener.Connections(), p.listener.Held(); n != 0 || held != 0 {
				t.Errorf("%d connections hold %d bytes, want none", n, held)
			}
		})
	}
}

// TestBudget checks that the largest connection of the source that holds the most has to cut requests, and no other.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 9, Bytes: 800, Metered: true})
		good, first, second := p.connect("192.0.2.1"), p.connect("192.0.2.2"), p.connect("192.0.2.2")
		good.hold(300)
		first.hold(150)
		second.hold(300)
		if second.cut != 0 {
			t.Errorf("%d bytes were cut within the budget", second.cut)
		}
		good.hold(100)
		if good.cut != 0 || first.cut != 0 || second.cut != 150 {
			t.Errorf("cut %d, %d and %d, want 0, 0 and 150: an eighth of the budget is free then", good.cut, first.cut,
				second.cut)
		}
		if held := p.listener.Held(); held != 700 {
			t.Errorf("%d bytes are held, want 700", held)
		}
	})
}

// TestBudgetHTTP1 checks that over HTTP/1 the connection of a request is closed.
func TestBudgetHTTP1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 9, Bytes: 1 << 20})
		accept := func(address string) (client, server net.Conn) {
			near, far := net.Pipe()
			p.pipes <- from{far, address}
			c, err := p.listener.Accept()
			p.did(err)
			go func() {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close() // as a server does
			}()
			t.Cleanup(func() { _, _ = near.Close(), c.Close() })
			return near, c
		}
		good, server := accept("192.0.2.1")
		bad, _ := accept("192.0.2.2")
		_, err := good.Write(bytes.Repeat([]byte("a:\r\n"), 100))
		p.did(err)
		sent := 0
		for ; err == nil && sent < 100; sent++ {
			_, err = bad.Write(bytes.Repeat([]byte("a:\r\n"), 100))
		}
		if err == nil {
			t.Errorf("%d lines of headers were taken", 100*sent)
		}
		_, err = good.Write([]byte("\r\n"))
		p.did(err)
		synctest.Wait() // a server answers what it has read
		go func() { _, _ = io.Copy(io.Discard, good) }()
		_, err = server.Write([]byte("HTTP/1.1 200 OK\r\n\r\n"))
		p.did(err)
		synctest.Wait()
		if held := p.listener.Held(); held != 0 {
			t.Errorf("%d bytes are held after the answer, want 0", held)
		}
	})
}

// TestDisplaced checks that a new connection closes the longest idle one of the source with the most connections.
func TestDisplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 4, Bytes: 1 << 20, Metered: true})
		var clients []*owner
		connect := func(address string) {
			o := p.connect(address)
			clients = append(clients, o)
			_, err := o.Write([]byte("an answer"))
			p.did(err)
			time.Sleep(time.Second)
		}
		open := func() (list []int) {
			synctest.Wait()
			for i, o := range clients {
				if !o.closed.Load() {
					list = append(list, i)
				}
			}
			return list
		}
		connect("192.0.2.1")
		connect("2001:db8::1")
		connect("2001:db8::2")
		connect("2001:db8::3") // of one network
		for i, c := range []struct {
			address string
			want    []int
		}{
			{"2001:db8::4", []int{0, 2, 3, 4}},
			{"192.0.2.2", []int{0, 3, 4, 5}},
			{"192.0.2.3", []int{0, 4, 5, 6}},
			{"192.0.2.3", []int{0, 4, 5, 7}}, // now this one has the most
		} {
			connect(c.address)
			if diff := cmp.Diff(c.want, open()); diff != "" {
				t.Errorf("connection %d: open are (-want +got)\n%s", i, diff)
			}
		}
	})
}
