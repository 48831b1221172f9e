package bucket_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestModelWalk lets the model, Request.Decide alone, and the embedded store decide the same random requests. Most
// numbers are small, and most steps of time are at the edges of windows and of the lives of holds.
func TestModelWalk(t *testing.T) {
	for lane := range 2 {
		t.Run(fmt.Sprint(lane), func(t *testing.T) {
			t.Parallel()
			seed := uint64(time.Now().UnixNano())
			// Nothing expires by the clock of the store, because the requests have a time of their own.
			memory, err := memstore.New(memstore.Config{Clock: func() int64 { return 0 }})
			if err != nil {
				t.Fatal(err)
			}
			defer memory.Close()
			w := modelWalk{random: rand.New(rand.NewPCG(seed, uint64(lane))), memory: memory}
			for steps := testenv.Steps(2_000, 500_000); w.steps < steps; {
				w.start()
				for range 40 {
					if diff := w.batch(t); diff != "" {
						t.Fatalf("seed %d, lane %d, step %d:\n%s", seed, lane, w.steps, diff)
					}
				}
			}
		})
	}
}

type modelWalk struct {
	random *rand.Rand
	memory *memstore.Store
	pure   pure
	model  *model
	legs   int
	steps  int

	now     int64
	buckets []bucket.Take // Key, Limit and the terms of Hold
}

func (w *modelWalk) pick(choices ...int64) int64 { return choices[w.random.IntN(len(choices))] }

// start begins a leg with new buckets.
func (w *modelWalk) start() {
	w.legs++
	w.pure, w.model, w.buckets = pure{}, newModel(), nil
	w.now = 1_700_000_000_000_000 + w.random.Int64N(1_000_000_000)
	algorithms := append([]bucket.Algorithm{bucket.Concurrency}, bucket.Algorithms...)
	for i := range 1 + w.random.IntN(3) {
		t := bucket.Take{Key: fmt.Sprint(w.legs, "/", i)}
		t.Limit.Algorithm = algorithms[w.random.IntN(len(algorithms))]
		if t.Limit.Algorithm != bucket.Concurrency {
			t.Limit.Window = w.pick(1, 2, 7, 10, 60, 1000, 3_000_000)
		}
		if t.Limit.Algorithm == bucket.Concurrency || w.random.IntN(4) > 0 {
			t.Hold = &bucket.Hold{
				TTL:     w.pick(1, 2, 10, 60, 500, 1_000_000, 5_000_000),
				Most:    w.pick(1, 2, 3, 5, 1000),
				Release: t.Limit.Algorithm == bucket.Concurrency || w.random.IntN(3) == 0,
			}
		}
		w.buckets = append(w.buckets, t)
		w.limit(i)
	}
}

// limit gives a bucket another limit.
func (w *modelWalk) limit(i int) {
	l := &w.buckets[i].Limit
	l.Requests = w.pick(1, 2, 3, 5, 8, 20)
	if w.random.IntN(12) == 0 {
		l.Requests = 0
	}
	l.Burst = w.pick(l.Requests, 1, 2, 5, 12)
}

// batch sends the next requests to the model and to both stores, and returns how the first decision differs.
func (w *modelWalk) batch(t *testing.T) (difference string) {
	t.Helper()
	requests := make([]bucket.Request, w.pick(1, 1, 2, 5))
	want, asked := make([]bucket.Outcome, len(requests)), make([][]bucket.Take, len(requests))
	for i := range requests {
		asked[i], requests[i].At = w.takes(), w.now
		for _, t := range asked[i] {
			requests[i].Add(t)
		}
		want[i] = w.model.decide(w.now, asked[i])
		w.steps++
	}
	for name, store := range map[string]ratelimit.Store{"alone": w.pure, "in memory": w.memory} {
		got := make([]bucket.Outcome, len(requests))
		ratelimit.Take(t.Context(), store, requests, got)
		for i := range got {
			if diff := different(&want[i], &got[i]); diff != "" {
				difference += fmt.Sprintf("%s, request %d at %d of the batch %s(-model +code):\n%s",
					name, i, requests[i].At, described(asked), diff)
				break
			}
		}
	}
	return difference
}

// different compares two decisions. The model has no ChargedAt and Delay.
func different(want, got *bucket.Outcome) string {
	same := got.Err == nil && got.Allowed == want.Allowed && got.RetryAfter == want.RetryAfter &&
		len(got.Decisions) == len(want.Decisions)
	for i := range got.Decisions {
		g := &got.Decisions[i]
		g.ChargedAt, g.Delay = 0, 0
		if i < len(want.Decisions) && g.Held != nil && g.Held.Number > 1 && g.ExpireAt > want.Decisions[i].ExpireAt {
			g.ExpireAt = want.Decisions[i].ExpireAt // of a bucket that leaks between the charges of several holds
		}
		same = same && (g.Held == nil) == (want.Decisions[i].Held == nil)
		if same && g.Held != nil {
			a, b := *g.Held, *want.Decisions[i].Held
			same = a.Units == b.Units && a.Number == b.Number && a.Until == b.Until &&
				a.Settled == b.Settled && a.Unknown == b.Unknown && a.Expired == b.Expired
		}
		a, b := *g, bucket.Decision{}
		if same {
			b = want.Decisions[i]
			a.Held, b.Held = nil, nil
			same = a == b
		}
	}
	if same {
		return ""
	}
	return cmp.Diff(want, got, cmpopts.IgnoreUnexported(bucket.Held{}), cmpopts.EquateEmpty())
}

func described(requests [][]bucket.Take) (text string) {
	for i, takes := range requests {
		for _, t := range takes {
			text += fmt.Sprintf("\nrequest %d: %+v\n           hold %+v", i, t, t.Hold)
		}
	}
	return text + "\n"
}

// takes returns the takes of the next request, of which some have the same bucket.
func (w *modelWalk) takes() (takes []bucket.Take) {
	some := w.buckets[w.random.IntN(len(w.buckets))]
	window, ttl := max(some.Limit.Window, 1), int64(1)
	if some.Hold != nil {
		ttl = some.Hold.TTL
	}
	w.now += w.pick(0, 0, 0, 0, 1, 1, 2, window/3, window-1, window, window+1, 2*window, window-w.now%window,
		ttl-1, ttl, ttl+1, ttl/2, -1, -2, -window, -1_999_999, -2_000_000, -2_000_001, -2_000_000-window, 2_000_000)
	roles := make([]bucket.Role, len(w.buckets))
	for i := range roles {
		roles[i] = bucket.Role(w.pick(0, 0, 0, 1, 2))
		if w.random.IntN(25) == 0 {
			w.limit(i)
		}
		if h := w.buckets[i].Hold; h != nil && w.random.IntN(40) == 0 { // a reload
			other := *h
			other.TTL = w.pick(1, 10, 60, 500, 1_000_000, 5_000_000)
			other.Release = w.buckets[i].Limit.Algorithm == bucket.Concurrency || w.random.IntN(3) == 0
			w.buckets[i].Hold = &other
		}
	}
	for range w.pick(1, 1, 1, 2, 3, 4) {
		i := w.random.IntN(len(w.buckets))
		t := w.buckets[i]
		t.Role, t.CountDenied = roles[i], w.random.IntN(4) == 0
		if t.Hold == nil || w.random.IntN(3) == 0 {
			t.Cost = w.cost(&t.Limit)
			t.Need = uint64(w.pick(0, 0, 0, 1, 3))
			if w.random.IntN(6) == 0 {
				t.Refund = w.cost(&t.Limit)
			}
		}
		if t.Hold != nil {
			h := *t.Hold
			t.Hold = &h
			for range w.pick(0, 0, 1, 1, 1, 2) {
				h.Reserves = append(h.Reserves, bucket.HoldCost{ID: w.id(), Cost: w.cost(&t.Limit)})
			}
			if w.random.IntN(2) == 0 {
				h.Settles = w.settles(&t)
			}
		}
		takes = append(takes, t)
	}
	return takes
}

// settles returns settlements of different ids, and what undoes a hold.
func (w *modelWalk) settles(t *bucket.Take) (costs []bucket.HoldCost) {
	first := w.id()
	for n := range byte(w.pick(0, 1, 1, 1, 2)) {
		costs = append(costs, bucket.HoldCost{ID: bucket.HoldID{(first[0] + n) % 5}, Cost: w.cost(&t.Limit)})
	}
	if b := w.model.buckets[t.Key]; b != nil && len(b.holds) > 0 && w.random.IntN(3) == 0 {
		undone := b.holds[w.random.IntN(len(b.holds))].HoldCost
		undone.Expires = w.pick(undone.Expires, undone.Expires, undone.Expires+1, bucket.EndedBefore)
		costs = append(costs, undone)
	}
	return costs
}

func (w *modelWalk) id() bucket.HoldID { return bucket.HoldID{byte(w.random.IntN(5))} }

func (w *modelWalk) cost(l *bucket.Limit) uint64 {
	if w.random.IntN(60) == 0 {
		return uint64(w.pick(math.MaxInt64, math.MinInt64, -1, 1<<53))
	}
	capacity := l.Capacity()
	return uint64(w.pick(0, 1, 1, 1, 1, 2, 3, capacity/2, capacity, capacity+1, 2*capacity, 2*capacity+2))
}
