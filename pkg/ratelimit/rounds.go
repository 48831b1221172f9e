package ratelimit

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Rounds has the requests of some plans, and their outcomes. A store decides all requests of a round with one call:
//
//	Limiter.Plan for each query -> Limiter.Start -> Limiter.Finish for each plan -> Next
//	                                     ^                                           |
//	                                     \-------- while a plan needs one more -------/
//
// A plan needs one more round if the fallback store decides for the store, and in strict mode for StopWhenOver. The
// zero value is ready. Its memory is used again after Reset.
type Rounds struct {
	// At points to when the requests arrived. If it is nil or points to the zero time, the limiter reads the clock.
	At *time.Time

	now, next  round
	keys       []byte // of the takes of all rounds
	gap, every uint32 // see sketch.sample
}

// time returns At, or the time of a clock that is not nil, in µs since 1970.
func (r *Rounds) time(clock func() time.Time) int64 {
	if clock != nil {
		return clock().UnixMicro()
	}
	if r.At == nil || r.At.IsZero() {
		return time.Now().UnixMicro()
	}
	return r.At.UnixMicro()
}

// round is one call of a store.
type round struct {
	requests []bucket.Request
	outcomes []bucket.Outcome
	local    bool // the fallback store decides
}

// add adds an empty request, which may have the memory of an earlier one.
func (r *round) add() *bucket.Request {
	r.requests, r.outcomes = extend(r.requests), extend(r.outcomes)
	return &r.requests[len(r.requests)-1]
}

// extend returns the slice with one more element, which may have the memory of an earlier one.
func extend[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	return append(s, *new(T))
}

// truncate drops the requests after the first n.
func (r *round) truncate(n int) {
	for i := n; i < len(r.requests); i++ {
		request, o := &r.requests[i], &r.outcomes[i]
		*request = bucket.Request{Takes: texts.Clear(request.Takes)}
		*o = bucket.Outcome{Decisions: texts.Clear(o.Decisions), Seen: texts.Clear(o.Seen)}
	}
	r.requests, r.outcomes = r.requests[:n], r.outcomes[:n]
}

func (r *round) reset() {
	r.truncate(0)
	r.local = false
}

// Len returns the number of requests of the current round.
func (r *Rounds) Len() int { return len(r.now.requests) }

// Mark is a state of the rounds to which Undo returns.
type Mark struct{ now, next int }

// Mark returns the current state.
func (r *Rounds) Mark() Mark { return Mark{len(r.now.requests), len(r.next.requests)} }

// Undo drops the requests that were added after the mark. Their plans must be reset.
func (r *Rounds) Undo(m Mark) {
	r.now.truncate(m.now)
	r.next.truncate(m.next)
}

// Next begins the next round. It returns false if no plan needs one.
func (r *Rounds) Next() bool {
	if len(r.next.requests) == 0 {
		return false
	}
	r.now, r.next = r.next, r.now
	r.next.reset()
	return true
}

// Reset drops all that the rounds refer to. It keeps their memory, but not that of a large request.
func (r *Rounds) Reset() {
	r.now.reset()
	r.next.reset()
	r.keys = texts.Reset(r.keys)
}

// Start lets a store decide the current round. It calls done as Store.Start does.
func (l *Limiter) Start(ctx context.Context, r *Rounds, done func()) {
	store := l.cfg.Store
	if r.now.local { // also if the time of the caller is over
		store, ctx = l.cfg.Fallback, context.WithoutCancel(ctx)
	}
	for i := range r.now.outcomes {
		r.now.outcomes[i].Err = ErrUnanswered
	}
	store.Start(ctx, r.now.requests, r.now.outcomes, done)
}
