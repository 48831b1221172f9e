package faults

import (
	"sync"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// proxy passes connections on to a Redis. While it holds, it is a black hole: connections open and nothing passes.
type proxy struct {
	addr string

	mu   sync.Mutex
	pass chan struct{} // closed while data passes
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	p := &proxy{pass: make(chan struct{})}
	p.release()
	p.addr = testenv.Proxy(t, target, func() (toServer, fromServer testenv.Pass) { return p.wait, p.wait })
	t.Cleanup(func() { // before the connections end
		select {
		case <-p.pass:
		default:
			p.release()
		}
	})
	return p
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
func (p *proxy) wait([]byte) bool {
	p.mu.Lock()
	pass := p.pass
	p.mu.Unlock()
	<-pass
	return true
}
