package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Store is the interface that the suite tests.
type Store = ratelimit.Store

// patience is the longest time that a call of a store may take.
const patience = 30 * time.Second

// Run runs the whole suite with new keys. open returns a store that is ready, and closes it with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	suite(t, open, readVectors(t))
}

// RunSpread runs the suite for a store that decides a request in several places, and gives back what it has charged if
// one of them denies. Then a bucket may be dropped that a single place would have left as it was. Only a clock that
// goes back shows that, so the random requests of the vectors end before their clock does so.
func RunSpread(t *testing.T, open func(t *testing.T) Store) {
	t.Helper()
	all := readVectors(t)
	for i, w := range all {
		if w.mixed {
			all[i] = w.forward()
		}
	}
	suite(t, open, all)
}

func suite(t *testing.T, open func(t *testing.T) Store, all []walk) {
	t.Helper()
	t.Run("vectors", func(t *testing.T) { runVectors(t, open(t), all) })
	t.Run("cases", func(t *testing.T) { Cases(t, open(t)) })
	t.Run("nothing to take", func(t *testing.T) { nothingToTake(t, open(t)) })
	t.Run("hundreds of takes", func(t *testing.T) { hundredsOfTakes(t, open(t)) })
	t.Run("reused outcome", func(t *testing.T) { reusedOutcome(t, open(t)) })
	t.Run("cancelled", func(t *testing.T) { cancelled(t, open(t)) })
	t.Run("concurrent", func(t *testing.T) {
		s := open(t)
		Concurrent(t, s, s, s)
	})
}

// nothingToTake sends an empty batch, and requests without takes, which are allowed, between other requests.
func nothingToTake(t *testing.T, store Store) {
	take(t, store)
	key := keyspace(t)
	full := request(bucket.Take{Key: key, Limit: perDecades(bucket.TokenBucket, 1), Cost: 1})
	outcomes := take(t, store, bucket.Request{}, full, bucket.Request{Takes: []bucket.Take{}}, full)
	for i, want := range []bool{true, true, true, false} {
		if o := outcomes[i]; o.Err != nil || o.Allowed != want {
			t.Errorf("request %d of a batch (0 and 2 have no takes): allowed %t, err %v; want allowed %t",
				i, o.Allowed, o.Err, want)
		}
	}
}

// hundredsOfTakes checks that a request with many takes charges all of its buckets or none.
func hundredsOfTakes(t *testing.T, store Store) {
	const n = 300
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			run := keyspace(t)
			ask := func(cost, need uint64) bucket.Outcome {
				takes := make([]bucket.Take, n)
				for i := range takes {
					limit := perDecades(algorithm, 10)
					if i == n-1 {
						limit = perDecades(algorithm, 3)
					}
					takes[i] = bucket.Take{Key: name(run, i), Limit: limit, Cost: cost, Need: need}
				}
				o := take(t, store, request(takes...))[0]
				if o.Err != nil {
					t.Fatalf("%d takes in one request: %v", n, o.Err)
				}
				return o
			}
			if o := ask(2, 0); !o.Allowed {
				t.Fatalf("%d takes of cost 2, all of which fit: denied", n)
			}
			if o := ask(2, 0); o.Allowed {
				t.Fatalf("%d takes, the last of which does not fit: allowed", n)
			}
			for i, d := range ask(0, 1).Decisions {
				want := int64(8)
				if i == n-1 {
					want = 1
				}
				if d.Remaining != want {
					t.Errorf("take %d of %d after one allowed and one denied request: %d remain, want %d",
						i, n, d.Remaining, want)
				}
			}
		})
	}
}

// reusedOutcome checks that a store overwrites an earlier outcome completely.
func reusedOutcome(t *testing.T, store Store) {
	r := request(bucket.Take{Key: keyspace(t), Limit: perDecades(bucket.SlidingWindowLog, 2), Cost: 1})
	outcomes := []bucket.Outcome{{
		Err: errors.New("of an earlier answer"), RetryAfter: 1, Decisions: make([]bucket.Decision, 3, 7),
	}}
	for i, want := range []bool{true, true, false, false} {
		ratelimit.Take(t.Context(), store, []bucket.Request{r}, outcomes)
		o := outcomes[0]
		if o.Err != nil || o.Allowed != want || len(o.Decisions) != 1 || o.Decisions[0].Allowed != want ||
			(o.RetryAfter == 0) != want {
			t.Errorf("call %d of the same request: %+v; want allowed %t", i, o, want)
		}
	}
}

// cancelled sends a request with a context that is done. Either the request is decided, or its Err is set. It charges
// all of its buckets or none. If Err does not wrap ErrOutcomeUnknown, it charges none.
func cancelled(t *testing.T, store Store) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			run := keyspace(t)
			ask := func(cost, need uint64) bucket.Request {
				return request(
					bucket.Take{Key: name(run, 0), Limit: perDecades(algorithm, 10), Cost: cost, Need: need},
					bucket.Take{Key: name(run, 1), Limit: perDecades(algorithm, 10), Cost: cost, Need: need},
				)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			outcome := takeContext(ctx, t, store, ask(3, 0))[0]
			peek := take(t, store, ask(0, 1))[0]
			if peek.Err != nil {
				t.Fatal(peek.Err)
			}
			a, b := peek.Decisions[0].Remaining, peek.Decisions[1].Remaining
			switch {
			case a != b:
				t.Errorf("charged in part: %d and %d of 10 remain after one request of 3 and 3 (its err: %v)", a, b, outcome.Err)
			case outcome.Err == nil && !outcome.Allowed:
				t.Error("a request that fits was denied without an error")
			case outcome.Err == nil && a != 7:
				t.Errorf("allowed without an error, but %d of 10 remain after a cost of 3", a)
			case outcome.Err != nil && !errors.Is(outcome.Err, ratelimit.ErrOutcomeUnknown) && a != 10:
				t.Errorf("charged, although the error does not wrap ErrOutcomeUnknown: %v", outcome.Err)
			}
		})
	}
}

func request(takes ...bucket.Take) (r bucket.Request) {
	for _, t := range takes {
		r.Add(t)
	}
	return r
}

// perDecades returns a limit of n in 40 years, so that nothing refills and no window ends during a test.
func perDecades(algorithm bucket.Algorithm, n int64) bucket.Limit {
	const decades = 40 * 365 * 24 * int64(time.Hour/time.Microsecond)
	return bucket.Limit{Algorithm: algorithm, Requests: n, Burst: n, Window: decades}
}

func take(t *testing.T, store Store, batch ...bucket.Request) []bucket.Outcome {
	t.Helper()
	return takeContext(t.Context(), t, store, batch...)
}

// takeContext calls store.Take. It fails the test if Take does not return within patience.
func takeContext(ctx context.Context, t *testing.T, store Store, batch ...bucket.Request) []bucket.Outcome {
	t.Helper()
	outcomes := make([]bucket.Outcome, len(batch))
	done := make(chan struct{})
	go func() {
		defer close(done)
		ratelimit.Take(ctx, store, batch, outcomes)
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("Take of %d requests has not returned within %v", len(batch), patience)
	}
	return outcomes
}
