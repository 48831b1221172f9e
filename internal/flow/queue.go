package flow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// longest bounds the time for which an answer is held.
const longest = time.Minute

// Queue holds answers until their time. A bucket gives each request a later time than the one before, and timers end in
// the order of their times. So answers leave in order and at the rate of the bucket. It is safe for concurrent use.
type Queue struct {
	// Held is the number of answers that are held now.
	Held atomic.Int64
	// Delayed counts answers that were held, NotHeld those that were not for lack of a place or of time.
	Delayed, NotHeld atomic.Uint64

	places int64
}

// NewQueue returns a queue that holds at most this many answers at once.
func NewQueue(places int) *Queue { return &Queue{places: int64(places)} }

// Most returns how long the answer to a request with this time until its deadline can be held. It is 0 if the queue is
// full. The limiter denies a request that would wait longer, and does not charge it. Enter can still return false.
func (q *Queue) Most(left time.Duration) time.Duration {
	if q.Held.Load() >= q.places {
		return 0
	}
	return min(longest, max(0, left-ratelimit.DeadlineReserve))
}

// Enter takes a place for an answer that is held for d: call Stay or Leave. It returns false if there is no place, or
// no time until the deadline, which is the zero time for none.
func (q *Queue) Enter(deadline time.Time, d time.Duration) bool {
	if !deadline.IsZero() && time.Until(deadline) <= d {
		q.NotHeld.Add(1)
		return false
	}
	if q.Held.Add(1) > q.places {
		q.Leave(nil)
		q.NotHeld.Add(1)
		return false
	}
	q.Delayed.Add(1)
	return true
}

// Stay returns true after d, and false when ctx is cancelled. It gives the place of Enter back, and those in rules.
func (q *Queue) Stay(ctx context.Context, d time.Duration, inRules ratelimit.Places) bool {
	defer q.Leave(inRules)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Leave gives the place of Enter back, and those in rules.
func (q *Queue) Leave(inRules ratelimit.Places) {
	inRules.Leave()
	q.Held.Add(-1)
}
