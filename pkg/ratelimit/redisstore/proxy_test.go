package redisstore_test

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a client and Redis.
type proxy struct {
	addr string
	// swallow makes the proxy cut the connection instead of passing on the reply to the next EVALSHA.
	swallow atomic.Bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: listener.Addr().String()}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				_ = client.Close()
				continue
			}
			var cut atomic.Bool
			all.Go(func() { p.pass(server, client, &cut, true) })
			all.Go(func() { p.pass(client, server, &cut, false) })
		}
	})
	t.Cleanup(func() { // the store has closed its connections before this
		_ = listener.Close()
		all.Wait()
	})
	return p
}

// pass copies in one direction until either side ends. Data after a cut is lost.
func (p *proxy) pass(to, from net.Conn, cut *atomic.Bool, commands bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if commands && bytes.Contains(bytes.ToUpper(buf[:n]), []byte("EVALSHA")) && p.swallow.CompareAndSwap(true, false) {
			cut.Store(true)
		}
		if !commands && cut.Load() {
			return
		}
		if _, err := io.Copy(to, bytes.NewReader(buf[:n])); err != nil {
			return
		}
	}
}
