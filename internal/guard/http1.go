package guard

import (
	"bytes"
	"net"
)

// The estimated memory of an HTTP/1 request. Each line may be a header, which becomes an entry of a map.
const (
	perHTTP1Byte = 4
	perLine      = 256
)

// http1Conn is a connection with one request at a time: the bytes that were read since the last answer.
type http1Conn struct{ conn }

// Read implements net.Conn.
func (c *http1Conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.waiting = 1
		c.hold(int64(n)*perHTTP1Byte+int64(bytes.Count(p[:n], []byte{'\n'}))*perLine, 0)
		c.mu.Unlock()
		if c.l.over() {
			c.l.freeMemory()
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.isCut {
				return 0, net.ErrClosed // the server must not keep what was read
			}
		}
	}
	return n, err
}

// Write implements net.Conn. The answer ends the request.
func (c *http1Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.hold(int64(len(p)), 0)
	c.mu.Unlock()
	n, err := c.write(p)
	c.last.Store(c.l.now.Load())
	c.mu.Lock()
	c.waiting = 0
	c.hold(-c.held, -c.leaving)
	c.mu.Unlock()
	return n, err
}

func (c *http1Conn) cutRequests(int64) int64 {
	freed := c.staying()
	if freed > 0 {
		c.l.cuts[OverBudget].Add(1)
		c.cut()
	}
	return freed
}

// sweep does nothing, because http.Server enforces its own timeouts.
func (*http1Conn) sweep() {}
