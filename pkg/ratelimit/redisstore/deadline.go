package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const (
	// patience is how long an operation may take by default. Redis gets as long for a reply, even if no caller waits that
	// long, so that a short standstill closes no connections.
	patience = 50 * time.Millisecond
	// longest is the same for Config.WholeDeadline: the default of REDIS_TIMEOUT at envoyproxy/ratelimit.
	longest = 10 * time.Second
	// margin is the part of a caller's deadline that remains for returning the answer.
	margin = 5 * time.Millisecond
	// grace is the part of margin in which a worker may still read a reply that has arrived.
	grace = 3 * time.Millisecond
)

// bound is how long an operation may take.
type bound struct {
	timeout time.Duration // from when Start is called
	margin  time.Duration // before the deadline of the caller
}

// bound returns the bound of operations. The config has its defaults.
func (cfg *Config) bound() bound {
	if cfg.WholeDeadline {
		return bound{cfg.Timeout, 0}
	}
	return bound{cfg.Timeout, margin}
}

// end returns when an operation that begins now has to end. caller is the deadline of its caller, if it has one.
func (b bound) end(now, caller time.Time, has bool) time.Time {
	end := now.Add(b.timeout)
	if last := caller.Add(-b.margin); has && last.Before(end) {
		return last
	}
	return end
}

// deadline bounds how long one caller waits for all its calls.
type deadline struct {
	ctx    context.Context
	end    time.Time
	timer  *time.Timer
	passed bool
}

// newDeadline returns the deadline of an operation that begins now. The error is ErrTooLate if it has passed. The
// caller must stop the timer.
func newDeadline(ctx context.Context, b bound) (deadline, error) {
	now := time.Now()
	caller, has := ctx.Deadline()
	end := b.end(now, caller, has)
	if !end.After(now) || ctx.Err() != nil {
		return deadline{}, ErrTooLate
	}
	return deadline{ctx: ctx, end: end, timer: time.NewTimer(end.Sub(now))}, nil
}

// await reports whether a node answered the call in time. If so, its chunks have the answer. A reply that has arrived
// when the deadline passes is in time: its worker has not had the CPU to read it.
func (d *deadline) await(c *call, n *node) bool {
	if !d.passed {
		select {
		case <-c.done:
			return true
		case <-d.timer.C:
		case <-d.ctx.Done():
		}
		d.pass()
	}
	if c.state.Load() == sent && n.links.unread() {
		select {
		case <-c.done:
			return true
		case <-d.timer.C:
			d.timer.Reset(0) // the next call gets no more time
		}
	}
	select {
	case <-c.done: // the answer came at the same moment
		return true
	default:
		return false
	}
}

// pass ends the wait for Redis. The timer then bounds the wait for workers to read replies that have arrived.
func (d *deadline) pass() {
	d.passed = true
	d.timer.Reset(grace)
}

// awaitClosed waits until a channel is closed or the deadline has passed.
func (d *deadline) awaitClosed(closed <-chan struct{}) {
	select {
	case <-closed:
		return
	default:
	}
	if d.passed {
		return
	}
	select {
	case <-closed:
	case <-d.timer.C:
		d.pass()
	case <-d.ctx.Done():
		d.pass()
	}
}

// giveUp ends the wait for a call that was not answered in time, and returns why it has no answer.
func (c *call) giveUp() error {
	if c.drop() {
		return ErrTooLate
	}
	return fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
}
