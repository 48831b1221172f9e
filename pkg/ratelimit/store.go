package ratelimit

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store keeps buckets and takes from them. It is safe for concurrent use.
type Store interface {
	// Take decides a batch of requests in their order, each all or nothing by itself. It writes the outcome of requests[i] to
	// outcomes[i]. Both slices have the same length and belong to the caller, also if Take has given up. An outcome whose Err
	// wraps ErrOutcomeUnknown is that of a request which may have been charged. Take returns when ctx is done at the latest.
	Take(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome)
}

// ErrOutcomeUnknown says that a request was sent to the store and no answer came back: its buckets may have been charged.
var ErrOutcomeUnknown = errors.New("the store did not answer: the request may have been charged")
