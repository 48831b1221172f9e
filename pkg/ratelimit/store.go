package ratelimit

import (
	"context"
	"errors"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store keeps buckets and takes from them. It is safe for concurrent use.
type Store interface {
	// Start begins to decide a batch of requests in their order, each all or nothing by itself. It calls done exactly
	// once, when the outcome of each requests[i] is in outcomes[i]: before it returns, or later in another goroutine.
	// Until then, both slices and all that the requests refer to belong to the store. If an outcome's Err wraps
	// ErrOutcomeUnknown, its request may have been charged. The store calls done when ctx is done at the latest. done must
	// not wait for anything. After a panic in Start, the caller goes on with the outcomes at hand, and ignores done.
	Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func())
}

// DeadlineReserve is the part of a caller's deadline that remains for returning the answer.
const DeadlineReserve = 5 * time.Millisecond

// ErrOutcomeUnknown means that the store received a request but did not answer: its buckets may have been charged.
var ErrOutcomeUnknown = errors.New("the store did not answer: the request may have been charged")

// Take lets a store decide a batch of requests, and waits for the outcomes. See Store.Start.
func Take(ctx context.Context, store Store, requests []bucket.Request, outcomes []bucket.Outcome) {
	w := newWait()
	store.Start(ctx, requests, outcomes, w.done)
	<-w.ended
}

// Caught must be deferred. It calls report with the value of a panic, which goes on if report is nil.
func Caught(report func(value any)) {
	if report == nil {
		return
	}
	if p := recover(); p != nil {
		report(p)
	}
}

// wait is the wait for one call of done at a time.
type wait struct {
	ended chan struct{}
	done  func()
}

func newWait() *wait {
	ended := make(chan struct{}, 1)
	return &wait{ended, func() { ended <- struct{}{} }}
}
