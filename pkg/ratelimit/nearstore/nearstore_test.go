package nearstore_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestOutageContinuesFromTheLastKnownState is trap T2 with the fallback: what was admitted here is neither forgotten by
// a late answer nor charged twice.
func TestOutageContinuesFromTheLastKnownState(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r, l := newReplica(t, s, nearstore.Config{}), perDay(algorithm, 10)
				if got := r.take("k", l, 4); got != 4 {
					t.Fatalf("%d of 4 admitted", got)
				}
				r.link.set(fate{refused: true})
				if got := r.take("k", l, 3); got != 3 {
					t.Errorf("%d of 3 admitted in the outage", got)
				}
				r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				if got := r.take("k", l, 5); got != 3 {
					t.Errorf("%d admitted after the outage, want the last 3 of 10", got)
				}
				if used := s.used("k", l); used != 10 {
					t.Errorf("Redis has charged %d, want 10", used)
				}
				time.Sleep(time.Minute)
				if stats := r.Stats(); stats.Owing != 0 || stats.CaughtUp != 3 {
					t.Errorf("%+v, want 3 repaid", stats)
				}
				_ = r.Close()
			})
		})
	}
}

// brokenAfter is a shared store whose Epoch panics once it has answered.
type brokenAfter struct {
	unused

	answered *atomic.Bool
}

// Start implements nearstore.Shared.
func (s brokenAfter) Start(
	ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func(),
) {
	s.unused.Start(ctx, requests, outcomes, func() { s.answered.Store(true); done() })
}

// Epoch implements nearstore.Shared.
func (s brokenAfter) Epoch(*bucket.Take) uint64 {
	if s.answered.Load() {
		panic("a bug")
	}
	return 1
}

// TestPanicWhileRecording has a panic while an answer is recorded. The caller gets its outcome, and the panic is
// reported: it must not go on to a caller whose batch may be in use for other requests.
func TestPanicWhileRecording(t *testing.T) {
	var panics []any
	s, err := nearstore.New(nearstore.Config{
		Shared: brokenAfter{answered: new(atomic.Bool)}, Panicked: func(value any) { panics = append(panics, value) },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := bucket.Request{}
	r.Add(bucket.Take{Key: "k", Limit: perDay(bucket.TokenBucket, 10), Cost: 1})
	outcomes := make([]bucket.Outcome, 1)
	ratelimit.Take(t.Context(), s, []bucket.Request{r}, outcomes)
	if o := outcomes[0]; !o.Allowed || o.Err != nil {
		t.Errorf("got %+v, want the outcome of the shared store", o)
	}
	if len(panics) != 1 {
		t.Errorf("reported panics: %v, want one", panics)
	}
}
