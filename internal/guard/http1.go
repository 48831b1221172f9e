package guard

import (
	"bytes"
	"net"
	"time"
)

// The estimated memory of an HTTP/1 request. Each line may be a header, which becomes an entry of a map.
const (
	perHTTP1Byte = 4
	perLine      = 256
)

// http1Conn is the Owner of a connection with one request at a time: the bytes that were read since the last answer.
type http1Conn struct {
	net.Conn // It is guarded.
	guarded  *Conn
}

// Read implements net.Conn.
func (c *http1Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		lines := bytes.Count(p[:n], []byte{'\n'})
		c.guarded.Account(Change{Staying: int64(n)*perHTTP1Byte + int64(lines)*perLine, Requests: 1})
		c.guarded.mu.Lock()
		defer c.guarded.mu.Unlock()
		if c.guarded.isCut {
			return 0, net.ErrClosed // the server must not keep what was read
		}
	}
	return n, err
}

// Write implements net.Conn. The answer ends the request.
func (c *http1Conn) Write(p []byte) (int, error) {
	g := c.guarded
	g.mu.Lock()
	g.hold(int64(len(p)), 0)
	g.mu.Unlock()
	n, err := g.Write(p)
	g.mu.Lock()
	g.waiting = 0
	g.hold(-g.held, -g.leaving)
	g.mu.Unlock()
	return n, err
}

// Cut implements Owner. It closes the connection, and Abort counts what is released later.
func (c *http1Conn) Cut(int64) (freed, leaving int64) {
	if freed = c.guarded.staying(); freed > 0 {
		c.guarded.Count(OverBudget)
		c.guarded.Abort()
	}
	return freed, freed
}

// Sweep implements Owner. It does nothing, because http.Server enforces its own timeouts.
func (*http1Conn) Sweep(time.Time) {}
