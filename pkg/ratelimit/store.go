package ratelimit

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store keeps buckets and takes from them. It is safe for concurrent use.
type Store interface {
	// Take decides a batch of requests in their order, each all or nothing by itself. It writes the outcome of requests[i]
	// to outcomes[i]. Both slices have the same length and belong to the caller again when Take returns. If an outcome's
	// Err wraps ErrOutcomeUnknown, its request may have been charged. Take returns when ctx is done at the latest.
	Take(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome)
}

// ErrOutcomeUnknown means that the store received a request but did not answer: its buckets may have been charged.
var ErrOutcomeUnknown = errors.New("the store did not answer: the request may have been charged")
