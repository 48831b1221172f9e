package storetest_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// plain is the simplest correct store: one map and one lock.
type plain struct {
	mu      sync.Mutex
	buckets map[string]bucket.State
}

func (p *plain) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, r := range requests {
		loaded := make([]bucket.Loaded, len(r.Takes))
		for k, t := range r.Takes {
			state := p.buckets[t.Key]
			loaded[k].State = state.Clone() // a decision changes it in place
		}
		if r.Dry {
			r.DecideDry(time.Now().UnixMicro(), loaded, &outcomes[i])
			continue
		}
		r.Decide(time.Now().UnixMicro(), loaded, &outcomes[i])
		for k, t := range r.Takes {
			if loaded[k].Changed {
				p.buckets[t.Key] = loaded[k].State
			}
		}
	}
}

func TestPlainStore(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Store { return &plain{buckets: map[string]bucket.State{}} })
}
