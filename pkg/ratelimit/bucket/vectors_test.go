package bucket_test

import (
	"context"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// pure is a store that is nothing but Request.Decide over a map; for one goroutine.
type pure map[string]bucket.State

func (p pure) Take(_ context.Context, batch []*bucket.Request) {
	for _, r := range batch {
		for i := range r.Takes {
			r.Takes[i].State = p[r.Takes[i].Key]
		}
		r.Decide(0)
		for _, t := range r.Takes {
			if t.Changed {
				p[t.Key] = t.State
			}
		}
	}
}

func TestVectors(t *testing.T) { storetest.Vectors(t, pure{}) }

func TestExamples(t *testing.T) { storetest.Examples(t, pure{}) }
