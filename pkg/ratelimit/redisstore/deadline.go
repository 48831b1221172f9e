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

// end returns when an operation that begins now has to end. caller is the deadline of its caller, if it has one. The
// config has its defaults.
func (cfg *Config) end(now, caller time.Time, has bool) time.Time {
	if !cfg.WholeDeadline {
		caller = caller.Add(-ratelimit.DeadlineReserve)
	}
	if end := now.Add(cfg.Timeout); !has || end.Before(caller) {
		return end
	}
	return caller
}

// begin returns when an operation of a caller has to end that begins now. The error is ErrTooLate if it is too late.
func (cfg *Config) begin(ctx context.Context) (end time.Time, err error) {
	now := time.Now()
	caller, has := ctx.Deadline()
	if end = cfg.end(now, caller, has); !end.After(now) || ctx.Err() != nil {
		return end, ErrTooLate
	}
	return end, nil
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
	if c.state.CompareAndSwap(waiting, ended) {
		c.end(ErrTooLate)
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
	case c.node.links.unread():
		c.timer.Reset(grace)
		return
	}
	if !c.state.CompareAndSwap(sent, ended) {
		return
	}
	if c.settling {
		c.end(ErrTooLate)
		return
	}
	c.end(errNoAnswer)
}

var errNoAnswer = fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
