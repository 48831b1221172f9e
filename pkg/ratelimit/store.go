package ratelimit

import (
	"context"
	"errors"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store keeps buckets and takes from them. It is safe for concurrent use.
type Store interface {
	// Take decides a batch of requests, each all or nothing by itself, and answers in place; a request that could not be
	// decided has its Err set, to an error that wraps ErrOutcomeUnknown when it may have been charged all the same. Take
	// returns when ctx is done at the latest; the requests belong to the caller again from then on.
	Take(ctx context.Context, batch []*bucket.Request)
}

// ErrOutcomeUnknown says that a request was sent to the store and no answer came back: its buckets may have been charged.
var ErrOutcomeUnknown = errors.New("the store did not answer: the request may have been charged")
