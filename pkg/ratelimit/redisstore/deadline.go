package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// margin is the part of a caller's deadline that remains for returning the answer.
const margin = 3 * time.Millisecond

// deadline bounds how long one caller waits for all its calls.
type deadline struct {
	ctx    context.Context
	timer  *time.Timer
	passed bool
}

// newDeadline returns the earlier of a timeout and the deadline of ctx. The error is ErrTooLate if it has passed. The
// caller must stop the timer.
func newDeadline(ctx context.Context, timeout time.Duration) (deadline, error) {
	if at, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(at)-margin)
	}
	if timeout <= 0 || ctx.Err() != nil {
		return deadline{}, ErrTooLate
	}
	return deadline{ctx: ctx, timer: time.NewTimer(timeout)}, nil
}

// await reports whether the call was answered in time. If so, its chunks have the answer.
func (d *deadline) await(c *call) bool {
	if !d.passed {
		select {
		case <-c.done:
			return true
		case <-d.timer.C:
		case <-d.ctx.Done():
		}
		d.passed = true
	}
	select {
	case <-c.done: // the answer came at the same moment
		return true
	default:
		return false
	}
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
		d.passed = true
	case <-d.ctx.Done():
		d.passed = true
	}
}

// giveUp ends the wait for a call that was not answered in time, and returns why it has no answer.
func (c *call) giveUp() error {
	if c.drop() {
		return ErrTooLate
	}
	return fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
}
