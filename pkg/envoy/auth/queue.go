package auth

import (
	"context"
	"sync/atomic"
	"time"
)

// queue holds answers until their time. A leaky bucket gives each request a later time than the one before, and timers end in
// the order of their times: so answers leave in order and at the rate of the bucket. It has no goroutines of its own.
type queue struct {
	max     int64
	held    atomic.Int64
	delayed atomic.Uint64
	refused atomic.Uint64
}

// full reports whether nothing more can be held. Who asks before a request is decided spares it the charge for an answer that
// could not be given; of several at the same moment wait still turns some away.
func (q *queue) full() bool { return q.held.Load() >= q.max }

// wait returns true after d. It returns false when it can not: at once when the queue is full or ctx ends sooner, else when ctx
// is cancelled.
func (q *queue) wait(ctx context.Context, d time.Duration) bool {
	deadline, ok := ctx.Deadline()
	if ok && time.Until(deadline) < d {
		q.refused.Add(1)
		return false
	}
	defer q.held.Add(-1)
	if q.held.Add(1) > q.max {
		q.refused.Add(1)
		return false
	}
	q.delayed.Add(1)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
