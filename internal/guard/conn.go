package guard

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a guarded connection, whose Owner accounts for its requests. The guard bounds the number of connections,
// their memory in all, and the time of each write.
type Conn struct {
	net.Conn
	// below is Conn itself, or what Conn encrypts. Abort closes it, because the end of TLS could wait for the client.
	below net.Conn
	l     *Listener
	from  netip.Prefix
	// last is the time of the last answer, or of Accept before the first one.
	last atomic.Int64
	// writing is when the current write began, or 0 without one.
	writing atomic.Int64

	mu      sync.Mutex
	owner   Owner // nil until Attach
	gone    bool  // the server has closed it
	isCut   bool
	held    int64 // by requests that are not cut
	leaving int64 // by requests that are cut, until the server releases them
	waiting int   // requests that wait for their answers
}

// Owner is the server's side of a connection.
type Owner interface {
	// Cut resets requests until need bytes are free, or none is left. It returns the number of bytes that these requests
	// held, and how many of them are released only later (Change.Leaving). It must not wait, and not call Account.
	Cut(need int64) (freed, leaving int64)
	// Sweep is called ten times a second, to enforce time limits. It must not wait.
	Sweep(now time.Time)
}

// Attach sets the owner.
func (c *Conn) Attach(o Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owner = o
}

func (c *Conn) attached() Owner {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.owner
}

// Change is a change of what the requests of a connection hold.
type Change struct {
	// Staying is the memory of requests that are not cut, Leaving that of the others.
	Staying, Leaving int64
	// Requests is the number of requests now.
	Requests int
}

// Account records a change. If all clients together hold too much, it cuts requests. No lock of the Owner may be held.
func (c *Conn) Account(change Change) {
	c.mu.Lock()
	c.waiting = change.Requests
	c.hold(change.Staying, change.Leaving)
	c.mu.Unlock()
	if change.Staying > 0 && c.l.over() {
		c.l.freeMemory()
	}
}

// Count counts something that the server has closed or reset.
func (c *Conn) Count(r Reason) { c.l.cuts[r].Add(1) }

// Write implements net.Conn. It records when the write began, for sweep.
func (c *Conn) Write(p []byte) (int, error) {
	c.writing.Store(max(1, c.l.now.Load()))
	n, err := c.Conn.Write(p)
	c.writing.Store(0)
	c.Wrote()
	return n, err
}

// Wrote records a write that was made without Write, and has not waited.
func (c *Conn) Wrote() { c.last.Store(c.l.now.Load()) }

// CloseWrite tells the client that nothing follows, but still reads.
func (c *Conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

func (c *Conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waiting > 0
}

// hold adds to what the requests hold: those that are not cut, and those that are. c.mu is held.
func (c *Conn) hold(staying, leaving int64) {
	if c.gone {
		return
	}
	if c.isCut { // all its requests count as cut
		staying, leaving = 0, staying+leaving
	}
	c.held += staying
	c.l.held.Add(staying)
	if leaving != 0 {
		c.leaving += leaving
		c.l.leaving.Add(leaving)
	}
}

// staying returns what the requests of the connection hold that are not cut.
func (c *Conn) staying() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// cutRequests cuts requests until need bytes are free, or none is left, and returns the number of bytes that it freed.
func (c *Conn) cutRequests(need int64) int64 {
	owner := c.attached()
	if owner == nil {
		return 0
	}
	freed, leaving := owner.Cut(need)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hold(-freed, leaving)
	return freed
}

// Abort closes the connection below its server, at once. Until the server closes it too, its memory counts as held.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.hold(-c.held, c.held)
	c.isCut = true
	c.mu.Unlock()
	c.l.remove(c)
	_ = c.below.Close() // the server may close it at the same time
}

// Close implements net.Conn, for the server. It does not wait for the end of TLS: the client may not read it, and the
// server closes its connections one after the other.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.hold(-c.held, -c.leaving)
	c.gone = true
	c.mu.Unlock()
	c.l.remove(c)
	if c.below != c.Conn {
		go func() { _ = c.Conn.Close() }() // ends within 5 s (crypto/tls), or with below
		return nil
	}
	return c.Conn.Close()
}
