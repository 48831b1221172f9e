// Package hold holds answers until their time (max_delay). One queue serves all services, so that the answers which are held are
// bounded together.
package hold

import (
	"context"
	"sync/atomic"
	"time"
)

const (
	// margin is what is left of the caller's deadline for an answer that was held.
	margin = 5 * time.Millisecond
	// longest bounds how long an answer is held.
	longest = time.Minute
)

// Queue holds answers until their time. A leaky bucket gives each request a later time than the one before, and timers end in
// the order of their times: so answers leave in order and at the rate of the bucket. It has no goroutines of its own. It is safe for
// concurrent use.
type Queue struct {
	places  int64
	held    atomic.Int64
	delayed atomic.Uint64
	refused atomic.Uint64
}

// New returns a queue that holds so many answers at once.
func New(places int) *Queue { return &Queue{places: int64(places)} }

// Stats describes what a queue has done.
type Stats struct {
	// Held is how many answers are held now, Delayed how many were held so far. NotHeld is how many were not, because there was no
	// place or no time.
	Held    int64
	Delayed uint64
	NotHeld uint64
}

// Stats returns the numbers of this moment.
func (q *Queue) Stats() Stats {
	return Stats{Held: q.held.Load(), Delayed: q.delayed.Load(), NotHeld: q.refused.Load()}
}

// Most returns how long the answer to a request can be held: 0 if the queue is full, and otherwise if the caller states no deadline.
// The limiter denies a request that would have to wait longer, and does not charge it. Requests that are decided at the same moment
// can find the queue full all the same: see Wait.
func (q *Queue) Most(ctx context.Context, otherwise time.Duration) time.Duration {
	if q.held.Load() >= q.places {
		return 0
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return otherwise
	}
	return min(longest, max(0, time.Until(deadline)-margin))
}

// Wait returns true after d. It returns false if it cannot: at once if the queue is full or ctx ends sooner, else when ctx is
// cancelled.
func (q *Queue) Wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	deadline, ok := ctx.Deadline()
	if ok && time.Until(deadline) < d {
		q.refused.Add(1)
		return false
	}
	defer q.held.Add(-1)
	if q.held.Add(1) > q.places {
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
