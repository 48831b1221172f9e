package h2unary

import (
	"errors"
	"syscall"
)

// Flush sends the complete answers. It waits for the client to read them, unless another goroutine writes.
func (c *Conn) Flush() {
	if c.beginWrite() {
		c.write()
	}
}

// FlushSoon sends the complete answers without a wait: a goroutine sends what the socket does not take at once.
func (c *Conn) FlushSoon() {
	if !c.beginWrite() {
		return
	}
	for o := &c.output; len(o.bytes) > 0 && !o.failed; {
		b, shared := o.take()
		c.mu.Unlock()
		n, err := c.tryWrite(b)
		if err == nil && n < len(b) {
			go c.writeRest(b[n:], shared) // The guard bounds the time of each write.
			return
		}
		c.wrote(shared, err)
	}
	c.endWrite()
}

// beginWrite returns true if there is something to write, and no other goroutine writes. c.mu is locked then.
func (c *Conn) beginWrite() bool {
	c.settle()
	c.mu.Lock()
	if c.output.writing || len(c.output.bytes) == 0 {
		c.mu.Unlock()
		return false
	}
	c.output.writing = true
	return true
}

// write writes all that is to be written. c.mu is locked, and unlocked in the end.
func (c *Conn) write() {
	for o := &c.output; len(o.bytes) > 0 && !o.failed; {
		b, shared := o.take()
		c.mu.Unlock()
		_, err := c.guarded.Write(b)
		c.wrote(shared, err)
	}
	c.endWrite()
}

// writeRest goes on after an incomplete write.
func (c *Conn) writeRest(b []byte, shared *[writeBuffer]byte) {
	defer c.recovered()
	_, err := c.guarded.Write(b)
	c.wrote(shared, err)
	c.write()
}

// wrote notes the result of a write, and locks c.mu.
func (c *Conn) wrote(shared *[writeBuffer]byte, err error) {
	c.output.buffers.Put(shared)
	c.mu.Lock()
	c.output.failed = c.output.failed || err != nil
	c.changed.Broadcast()
}

// endWrite ends what beginWrite began. It unlocks c.mu.
func (c *Conn) endWrite() {
	c.output.writing = false
	c.changed.Broadcast()
	over := c.output.failed && !c.closed
	c.mu.Unlock()
	if over {
		c.guarded.Abort() // The goroutine that reads then ends the connection.
	}
}

// tryWrite writes what the socket takes at once. It writes nothing with TLS.
func (c *Conn) tryWrite(b []byte) (n int, err error) {
	if c.raw == nil {
		return 0, nil
	}
	c.guarded.Wrote()
	o := &c.output
	o.tried, o.sent, o.err = b, 0, nil
	if err = c.raw.Write(o.try); err == nil {
		err = o.err
	}
	return o.sent, err
}

// attempt writes what the socket takes at once, for syscall.RawConn.
func (o *output) attempt(fd uintptr) bool {
	n, err := syscall.Write(int(fd), o.tried)
	if o.tried = nil; !errors.Is(err, syscall.EAGAIN) && !errors.Is(err, syscall.EINTR) {
		o.err = err
	}
	o.sent = max(0, n)
	return true // RawConn must not wait.
}

// flushAll sends all that is to be sent, and waits until it is written, also by other goroutines.
func (c *Conn) flushAll() {
	c.Flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := &c.output; (o.writing || len(o.bytes) > 0) && !o.failed; {
		c.changed.Wait()
	}
}

// awaitReader waits while too much is unsent. It returns false if the connection is drained.
func (c *Conn) awaitReader() bool {
	c.mu.Lock()
	for len(c.output.bytes) > maxUnsent && c.output.writing && !c.output.failed {
		c.changed.Wait()
	}
	ended := c.drainer.ended(c)
	c.mu.Unlock()
	return !ended
}
