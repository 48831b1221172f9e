package testenv

import (
	"net"
	"sync"
	"testing"
)

// Pass decides what becomes of data that one side of a connection has sent. It may wait. If it returns false, the
// connection ends, and the data is lost.
type Pass func(data []byte) bool

// Proxy passes TCP connections on to a server, and returns its address. connect is called for each connection, and
// returns what is done with data to the server, and with data from it. All connections end with the test, so a Pass
// must not wait longer.
func Proxy(t testing.TB, target string, connect func() (toServer, fromServer Pass)) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{target: target, connect: connect, open: map[net.Conn]bool{}}
	p.serving.Go(func() { p.accept(listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		p.end()
		p.serving.Wait()
	})
	return listener.Addr().String()
}

type proxy struct {
	target  string
	connect func() (toServer, fromServer Pass)
	serving sync.WaitGroup

	mu    sync.Mutex
	open  map[net.Conn]bool
	ended bool
}

func (p *proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		toServer, fromServer := p.connect()
		p.keep(client, server)
		p.serving.Go(func() { p.copy(server, client, toServer) })
		p.serving.Go(func() { p.copy(client, server, fromServer) })
	}
}

// copy copies in one direction until either side ends.
func (p *proxy) copy(to, from net.Conn, pass Pass) {
	defer p.close(to, from)
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil || !pass(buf[:n]) {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// keep has the connections closed by end, or now if the test is over.
func (p *proxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		if p.open[c] = true; p.ended {
			_ = c.Close()
		}
	}
}

func (p *proxy) close(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	for c := range p.open {
		_ = c.Close()
	}
}
