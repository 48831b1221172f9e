package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// plain is the simplest store that is right: one map behind one lock.
type plain struct {
	mu      sync.Mutex
	buckets map[string]bucket.State
}

func (p *plain) Take(_ context.Context, batch []*bucket.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range batch {
		r.Err = nil
		for i := range r.Takes {
			r.Takes[i].State = p.buckets[r.Takes[i].Key]
		}
		r.Decide(time.Now().UnixMicro())
		for _, t := range r.Takes {
			if t.Changed {
				p.buckets[t.Key] = t.State
			}
		}
	}
}

func TestPlainStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return &plain{buckets: map[string]bucket.State{}} })
}
