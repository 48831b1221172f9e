package storetest

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store is what the suite tests: ratelimit.Store.
type Store interface {
	Take(ctx context.Context, batch []*bucket.Request)
}

func nowNanos() int64 { return time.Now().UnixNano() }
