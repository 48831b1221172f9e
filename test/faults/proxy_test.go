package faults

import (
	"net"
	"sync"
	"testing"
)

// proxy passes connections on to a Redis. While it holds, it is a black hole: connections open and nothing passes.
type proxy struct {
	addr string

	mu    sync.Mutex
	pass  chan struct{} // closed while data passes
	ended bool
	conns []net.Conn
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: listener.Addr().String(), pass: make(chan struct{})}
	p.release()
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() { p.serve(conn, target) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.end()
		all.Wait()
	})
	return p
}

// serve passes on one connection until either side ends it.
func (p *proxy) serve(conn net.Conn, target string) {
	defer func() { _ = conn.Close() }()
	p.wait()
	server, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.keep(conn, server) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(server, conn) })
	both.Go(func() { p.copy(conn, server) })
	both.Wait()
}

// copy copies in one direction. It closes both connections when one ends.
func (p *proxy) copy(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		p.wait()
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// hold stops all data, of open and of new connections.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pass = make(chan struct{})
}

// release passes on what was held, and all further data.
func (p *proxy) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.pass)
}

// wait returns while data passes.
func (p *proxy) wait() {
	p.mu.Lock()
	pass := p.pass
	p.mu.Unlock()
	<-pass
}

// keep has connections closed at the end of the test. It reports whether the test still runs.
func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, conns...)
	return !p.ended
}

func (p *proxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	select {
	case <-p.pass:
	default:
		close(p.pass)
	}
	for _, c := range p.conns {
		_ = c.Close()
	}
}
