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
	// grace is the part of ratelimit.DeadlineReserve in which a worker may still read a reply that has arrived.
	grace = 3 * time.Millisecond
)

// end returns when an operation that begins now has to end for a caller with this context. cfg has its defaults.
func (cfg *Config) end(ctx context.Context, now time.Time) time.Time {
	end := now.Add(cfg.Timeout)
	caller, has := ctx.Deadline()
	if !cfg.WholeDeadline {
		caller = caller.Add(-ratelimit.DeadlineReserve)
	}
	if has && caller.Before(end) {
		return caller
	}
	return end
}

// timeOut ends the wait for a call at its end, and again after grace.
func (c *call) timeOut() {
	if c.leave != nil {
		c.leave()
	}
	c.expire()
}

// expire ends the wait for a call at its end, or when its caller gives up. If a reply has arrived, a worker gets grace
// to read it: it has not had the CPU.
func (c *call) expire() {
	if c.giveUp() {
		return
	}
	now := int64(time.Since(c.until))
	switch {
	case c.state.Load() != sent:
		return
	case !c.graceEnd.CompareAndSwap(0, (now+int64(grace))|1): // never 0
		if now < c.graceEnd.Load() { // the timer fires again
			return
		}
	case c.node.lane.unread():
		c.timer.Reset(grace)
		return
	}
	if !c.state.CompareAndSwap(sent, ended) {
		return
	}
	err := errNoAnswer
	if c.settling {
		err = ErrTooLate
	}
	c.end(err)
}

// giveUp ends a call that has not been sent. It returns false for any other call.
func (c *call) giveUp() bool {
	if !c.state.CompareAndSwap(waiting, ended) {
		return false
	}
	c.end(ErrTooLate)
	return true
}

var errNoAnswer = fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
