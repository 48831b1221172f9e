package bucket_test

import (
	"context"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// pure is Request.Decide over a map as a store, for one goroutine.
type pure map[string]bucket.State

func (p pure) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	for i, r := range requests {
		loaded := make([]bucket.Loaded, len(r.Takes))
		for k, t := range r.Takes {
			state := p[t.Key]
			loaded[k].State = state.Clone() // a decision changes Grants in place
		}
		if r.Dry {
			r.DecideDry(0, loaded, &outcomes[i])
			continue
		}
		r.Decide(0, loaded, &outcomes[i])
		for k, t := range r.Takes {
			if loaded[k].Changed {
				p[t.Key] = loaded[k].State
			}
		}
	}
}

func TestVectors(t *testing.T) { storetest.Vectors(t, pure{}) }

func TestCases(t *testing.T) { storetest.Cases(t, pure{}) }
