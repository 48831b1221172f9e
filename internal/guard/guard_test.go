package guard_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/testenv"
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

// end is one end of a connection: it notes the frames that come, until the other closes it.
type end struct {
	net.Conn
	*http2.Framer
	mu    sync.Mutex
	notes []string
}

func newEnd(c net.Conn) *end { return &end{Conn: c, Framer: http2.NewFramer(c, c)} }

func (e *end) read() {
	for {
		f, err := e.ReadFrame()
		note := "closed"
		if err == nil {
			h := f.Header()
			note = fmt.Sprintf("%v %d", h.Type, h.StreamID)
			if r, ok := f.(*http2.RSTStreamFrame); ok {
				note += " " + r.ErrCode.String()
			}
		}
		e.mu.Lock()
		e.notes = append(e.notes, note)
		e.mu.Unlock()
		if err != nil {
			_ = e.Conn.Close() // as a server does
			return
		}
	}
}

// want compares what came since it was asked before.
func (e *end) want(t *testing.T, notes ...string) {
	t.Helper()
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	if diff := cmp.Diff(notes, e.notes); diff != "" {
		t.Errorf("after %v (-want +got)\n%s", time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)), diff)
	}
	e.notes = nil
}

// connect makes a connection of HTTP/2 from an address.
func (p *port) connect(address string) (client, server *end) {
	p.Helper()
	near, far := net.Pipe()
	p.pipes <- from{far, address}
	c, err := p.listener.Accept()
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _, _ = near.Close(), c.Close() })
	if p.client != nil {
		near = tls.Client(near, p.client)
	}
	client, server = newEnd(near), newEnd(c)
	go func() {
		_, _ = io.ReadFull(c, make([]byte, len(http2.ClientPreface)))
		server.read()
	}()
	go client.read()
	_, err = io.WriteString(near, http2.ClientPreface)
	p.did(err)
	return client, server
}

func (p *port) did(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func headers(id uint32) http2.HeadersFrameParam {
	return http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x82}, EndHeaders: true}
}

// request sends a request of this size.
func (p *port) request(client *end, id uint32, size int, whole bool) {
	p.Helper()
	p.did(client.WriteHeaders(headers(id)))
	p.did(client.WriteData(id, whole, make([]byte, size)))
}

// TestSlowRequest checks that a request that is incomplete after 10 s is reset at both ends, and its connection goes
// on.
func TestSlowRequest(t *testing.T) {
	for _, open := range []func(*testing.T, guard.Config) *port{newPort, newTLSPort} {
		synctest.Test(t, func(t *testing.T) {
			p := open(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
			client, server := p.connect("192.0.2.1")
			p.request(client, 1, 10, false)
			p.request(client, 3, 10, true)
			server.want(t, "HEADERS 1", "DATA 1", "HEADERS 3", "DATA 3")
			time.Sleep(9900 * time.Millisecond)
			client.want(t)
			time.Sleep(300 * time.Millisecond)
			server.want(t, "RST_STREAM 1 CANCEL")
			client.want(t, "RST_STREAM 1 CANCEL")
			p.request(client, 5, 10, true)
			server.want(t, "HEADERS 5", "DATA 5")
			p.did(server.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x88}, EndHeaders: true,
				EndStream: true}))
			client.want(t, "HEADERS 3")
			if got := p.listener.Cuts(guard.SlowRequest); got != 1 {
				t.Errorf("counted %d, want 1", got)
			}
		})
	}
}

// TestStuckFrame checks that a connection that stops within a frame or header block is closed: no stream can be reset
// there.
func TestStuckFrame(t *testing.T) {
	for name, write := range map[string]func(client *end) error{
		"within DATA": func(client *end) error {
			_, err := client.Conn.Write([]byte{0, 0, 9, 0, 0, 0, 0, 0, 1, 'x'})
			return err
		},
		"within the header of a frame": func(client *end) error {
			_, err := client.Conn.Write([]byte{0, 0, 9})
			return err
		},
		"within a block of headers": func(client *end) error {
			return client.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: []byte{0x82}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
				client, _ := p.connect("192.0.2.1")
				p.did(client.WriteSettings())
				p.did(client.WriteHeaders(headers(1)))
				p.did(write(client))
				time.Sleep(9 * time.Second)
				client.want(t)
				time.Sleep(3 * time.Second)
				client.want(t, "closed")
				if n, held := p.listener.Connections(), p.listener.Held(); n != 0 || held != 0 {
					t.Errorf("%d connections hold %d bytes, want none", n, held)
				}
			})
		})
	}
}

// TestSlowAnswer checks that a client that does not read its answers keeps eight streams, enough to watch the health.
func TestSlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
		client, server := p.connect("192.0.2.1")
		for i := range uint32(10) {
			p.request(client, 2*i+1, 10, true)
		}
		time.Sleep(89 * time.Second)
		client.want(t)
		server.mu.Lock()
		server.notes = nil
		server.mu.Unlock()
		time.Sleep(2 * time.Second)
		client.want(t, "RST_STREAM 17 CANCEL", "RST_STREAM 19 CANCEL")
		server.want(t, "RST_STREAM 17 CANCEL", "RST_STREAM 19 CANCEL")
		time.Sleep(time.Hour)
		client.want(t)
	})
}

// TestStuckWrite checks that the connection of a client that reads nothing is closed.
func TestStuckWrite(t *testing.T) {
	for _, cfg := range []guard.Config{{HTTP2: true}, {HTTP2: false}} {
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
			p := newTLSPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
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

// TestBudget checks that the largest requests of the source that holds the most are reset, and none of other sources.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 9, Bytes: 512 << 10, HTTP2: true})
		good, _ := p.connect("192.0.2.1")
		first, _ := p.connect("192.0.2.2")
		second, server := p.connect("192.0.2.2")
		p.request(good, 1, 10_000, true)
		p.request(first, 1, 5_000, false)
		p.request(second, 1, 100, false)
		p.request(second, 3, 16_000, false)
		p.request(second, 5, 16_000, true)
		server.want(t, "HEADERS 1", "DATA 1", "HEADERS 3", "DATA 3", "HEADERS 5", "DATA 5")
		good.want(t)
		p.request(good, 3, 10_000, true)
		server.want(t, "RST_STREAM 3 CANCEL")
		second.want(t, "RST_STREAM 3 ENHANCE_YOUR_CALM")
		first.want(t)
		good.want(t)
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
		p := newPort(t, guard.Config{Connections: 4, Bytes: 1 << 20, HTTP2: true})
		var clients []*end
		connect := func(address string) {
			client, server := p.connect(address)
			clients = append(clients, client)
			p.request(client, 1, 10, true)
			synctest.Wait()
			p.did(server.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x88}, EndHeaders: true,
				EndStream: true}))
			client.want(t, "HEADERS 1")
			time.Sleep(time.Second)
		}
		open := func() (list []int) {
			synctest.Wait()
			for i, c := range clients {
				c.mu.Lock()
				if !slices.Contains(c.notes, "closed") {
					list = append(list, i)
				}
				c.mu.Unlock()
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

// TestFlood checks that many frames without requests close a connection, but as many frames with requests do not.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
		quiet, server := p.connect("192.0.2.1")
		for i := range uint32(1000) {
			p.request(quiet, 2*i+1, 10, true)
			for range 5 {
				p.did(quiet.WritePing(false, [8]byte{}))
			}
			synctest.Wait()
			p.did(server.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: []byte{0x88}, EndHeaders: true,
				EndStream: true}))
		}
		loud, _ := p.connect("192.0.2.1")
		sent, err := 0, error(nil)
		for ; err == nil && sent < 10_000; sent++ {
			err = loud.WriteSettings()
		}
		if sent < 1000 || sent > 1100 {
			t.Errorf("%d frames were taken, want some 1000", sent)
		}
		if got := p.listener.Cuts(guard.Flood); got != 1 {
			t.Errorf("counted %d, want 1", got)
		}
	})
}

// TestAnyCut checks that the guard sees the same frames for any split of the bytes into reads and writes.
func TestAnyCut(t *testing.T) {
	var whole bytes.Buffer
	whole.WriteString(http2.ClientPreface)
	framer := http2.NewFramer(&whole, nil)
	for _, err := range []error{
		framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}),
		framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82, 0x84}}),
		framer.WriteContinuation(1, true, []byte{0x86}),
		framer.WriteData(1, false, []byte(strings.Repeat("x", 50))),
		framer.WriteHeaders(headers(3)),
		framer.WriteRSTStream(3, http2.ErrCodeCancel),
		framer.WriteData(1, true, nil),
		framer.WriteHeaders(headers(5)),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const want = 2*(16<<10) + 4*64 + 50*8 + 64 // streams 1 and 5, their headers, a frame of 50 bytes
	for size := 1; size <= whole.Len(); size++ {
		synctest.Test(t, func(t *testing.T) {
			p := newPort(t, guard.Config{Connections: 9, Bytes: 1 << 20, HTTP2: true})
			near, far := net.Pipe()
			p.pipes <- from{far, "192.0.2.1"}
			c, err := p.listener.Accept()
			p.did(err)
			go func() { _, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, make([]byte, size)) }()
			_, err = near.Write(whole.Bytes())
			p.did(err)
			synctest.Wait()
			if got := p.listener.Held(); got != want {
				t.Errorf("in reads of %d bytes: %d are held, want %d", size, got, want)
			}
			_, _ = near.Close(), c.Close()
		})
	}
}
