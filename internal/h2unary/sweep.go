package h2unary

import (
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/internal/guard"
)

// Time limits. No client of gRPC comes near them: it sends a request at once, and reads its answer.
const (
	// maxReceive bounds the time from the first byte of a frame or a request to its last.
	maxReceive = 10 * time.Second
	// maxParked bounds the time until the client lets an answer pass.
	maxParked = 10 * time.Second
	// pingAfter is when the server asks a silent client whether it is alive, pingTimeout how long it waits then.
	pingAfter   = 5 * time.Minute
	pingTimeout = 20 * time.Second
	// longestGap is the time between two calls of Sweep after which the process has stood still: it got no CPU time.
	longestGap = 250 * time.Millisecond
)

// Sweep implements guard.Owner.
func (c *Conn) Sweep(now time.Time) {
	c.mu.Lock()
	alive := c.sweep(now)
	c.mu.Unlock()
	if alive {
		c.FlushSoon()
		return
	}
	c.settle()
	c.guarded.Abort()
}

// sweep enforces the time limits, and returns false if the connection has to be closed. c.mu is held.
func (c *Conn) sweep(now time.Time) (alive bool) {
	if gap := now.Sub(c.swept); gap > longestGap {
		c.caughtUp = now.Add(gap)
	}
	c.swept = now
	if c.started < sentSettings {
		return true // The deadline of run bounds this phase.
	}
	if !c.begun.IsZero() && now.Sub(c.begun) > maxReceive {
		c.guarded.Count(guard.SlowRequest)
		return false
	}
	for _, k := range c.calls {
		switch {
		case k.state == arriving && k.isOver(now):
			_ = c.refuse(k, false, codes.DeadlineExceeded, overText)
		case k.state == arriving && now.Sub(k.Arrived) > maxReceive:
			c.guarded.Count(guard.SlowRequest)
			c.resetCall(k, http2.ErrCodeCancel)
		case k.state == parked && now.Sub(k.Arrived) > maxParked:
			c.guarded.Count(guard.SlowAnswer)
			c.resetCall(k, http2.ErrCodeCancel)
		}
	}
	c.sweepMemory(now)
	return c.sweepAge(now) && c.sweepSilence(now)
}

// stoodStill reports whether what was read last may have arrived while the process stood still. c.mu is held.
func (c *Conn) stoodStill() bool {
	return c.read.Sub(c.swept) > longestGap || c.read.Before(c.caughtUp)
}

// sweepMemory releases the memory of some calls after a second without any. A map never shrinks. c.mu is held.
func (c *Conn) sweepMemory(now time.Time) {
	const few = 4
	if len(c.calls) == 0 && c.most > few && now.Sub(c.heard) > time.Second {
		c.calls, c.free, c.most = make(map[uint32]*Call), nil, 0
	}
}

func (c *Conn) sweepAge(now time.Time) (alive bool) {
	d := &c.drainer
	if c.maxAge > 0 && now.Sub(c.born) > c.maxAge {
		c.beginDrain("max_age", now)
		if grace := c.server.cfg.MaxAgeGrace; grace > 0 && now.Sub(d.begun) > grace {
			return false
		}
	}
	if !d.begun.IsZero() && now.Sub(d.begun) > maxNotice {
		d.finish(c)
	}
	return true
}

func (c *Conn) sweepSilence(now time.Time) (alive bool) {
	switch {
	case !c.pinged.IsZero():
		return now.Sub(c.pinged) < pingTimeout
	case now.Sub(c.heard) > pingAfter:
		c.pinged = now
		c.output.add(appendPing(c.output.next(), 0, []byte("areAlive")))
	}
	return true
}
