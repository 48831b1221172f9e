package h2unary

import (
	"time"

	"golang.org/x/net/http2"
)

// drainer ends a connection without losing calls: a first GOAWAY asks the client to begin no more streams. When the
// client has read it, a second one names the last stream that is served. When these are answered, the connection ends.
type drainer struct {
	// begun is when the server sent the first GOAWAY. It is the zero time before.
	begun time.Time
	// final means that the server has sent the second GOAWAY.
	final bool
}

// drainPing is the PING whose answer shows that the client has read the first GOAWAY.
const drainPing = "goingOff"

// maxNotice is how long the server waits for that answer.
const maxNotice = 5 * time.Second

// drain begins to end the connection. It does not wait for the client.
func (c *Conn) drain(reason string) {
	c.mu.Lock()
	c.beginDrain(reason, time.Now())
	c.mu.Unlock()
	c.FlushSoon()
}

// beginDrain sends the first GOAWAY. c.mu is held.
func (c *Conn) beginDrain(reason string, now time.Time) {
	if !c.drainer.begun.IsZero() {
		return
	}
	c.drainer.begun = now
	b := appendGoAway(c.output.next(), lastStreamUnknown, http2.ErrCodeNo, reason)
	c.output.add(appendPing(b, 0, []byte(drainPing)))
}

// finish sends the second GOAWAY. c.mu is held.
func (d *drainer) finish(c *Conn) {
	if d.final {
		return
	}
	d.final = true
	c.streams.end = c.streams.last
	c.output.add(appendGoAway(c.output.next(), c.streams.last, http2.ErrCodeNo, ""))
	for _, k := range c.calls { // Answers that are streams would never end.
		if k.state == waiting && c.server.streams[k.Method] && k.cancel != nil {
			k.cancel()
		}
	}
	d.wake(c)
}

// wake ends the read of a connection on which nothing is left to do. c.mu is held.
func (d *drainer) wake(c *Conn) {
	if d.ended(c) {
		_ = c.guarded.SetReadDeadline(time.Unix(1, 0)) // An error means that the connection is closed.
	}
}

// ended reports whether nothing is left to do. c.mu is held.
func (d *drainer) ended(c *Conn) bool { return d.final && len(c.calls) == 0 }
