package nearstore_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// direct is a server without a link: it decides a call at once, in one answer.
type direct struct{ *server }

// Start implements nearstore.Shared.
func (d direct) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	sent := time.Now()
	for i := range requests {
		d.decide(&requests[i], &outcomes[i])
	}
	received := time.Now()
	for i := range requests {
		for k := range outcomes[i].Seen {
			outcomes[i].Seen[k].Sent, outcomes[i].Seen[k].Received = sent, received
		}
	}
}

// Epoch implements nearstore.Shared.
func (d direct) Epoch(*bucket.Take) uint64 { return d.epoch }

// Suspect implements nearstore.Shared.
func (d direct) Suspect(*bucket.Take) { d.epoch++ }

// follow sends batches of requests to a replica, and each request to a server alone. It returns how the first outcome
// differs, if one does. A denial from the cache has the same verdict, and changes nothing in Redis.
func follow(t *testing.T, batches [][]bucket.Request) (difference string) {
	t.Helper()
	alone := newServer()
	near, err := nearstore.New(nearstore.Config{Shared: direct{newServer()}, DenialCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	for n, batch := range batches {
		outcomes := make([]bucket.Outcome, len(batch))
		ratelimit.Take(t.Context(), near, batch, outcomes)
		for i, got := range outcomes {
			before, want := maps.Clone(alone.states), bucket.Outcome{}
			alone.decide(&batch[i], &want)
			if got.Origin == bucket.FromDenialCache {
				alone.states = before
				want.RetryAfter, want.Decisions, want.Origin = got.RetryAfter, got.Decisions, got.Origin
			}
			got.Seen, want.Seen = nil, nil
			if diff := gocmp.Diff(want, got, cmpopts.IgnoreUnexported(bucket.Held{})); diff != "" {
				return fmt.Sprintf("batch %d, request %d: %+v (-Redis alone +replica):\n%s", n, i, batch[i], diff)
			}
		}
	}
	if stats := near.Stats(); stats.Floors > 0 {
		return fmt.Sprintf("%+v, want no suspicion of a loss", stats)
	}
	return ""
}

// TestClockGoesBack has answers that show less than a replica knew, although Redis has lost nothing. The times of the
// requests are in seconds.
func TestClockGoesBack(t *testing.T) {
	at := func(second float64, t bucket.Take) bucket.Request {
		return bucket.Request{At: 1_700_000_000_000_000 + int64(second*1e6), Takes: []bucket.Take{t}}
	}
	for _, algorithm := range bucket.Algorithms {
		take := bucket.Take{Key: "k", Limit: perDay(algorithm, 10), Cost: 5}
		all, refund, counted := take, take, take
		all.Cost, refund.Cost, refund.Refund, counted.Cost, counted.CountDenied = 10, 0, 10, 15, true
		for name, batches := range map[string][][]bucket.Request{
			"between a charge and a refund": {{at(1, all), at(0, refund)}, {at(0.5, take)}, {at(1, take)}},
			"after a charge and a refund":   {{at(1, all), at(1, refund)}, {at(0, take)}, {at(1, take)}},
			"after a look at the bucket":    {{at(0, counted)}, {at(2, take)}, {at(1, counted)}, {at(3, take)}},
		} {
			t.Run(algorithm.String()+" "+name, func(t *testing.T) {
				if difference := follow(t, batches); difference != "" {
					t.Error(difference)
				}
			})
		}
	}
}

// TestWalk walks at random over a few buckets, some with holds, while the clock steps back at times, within batches
// also. A replica must decide as Redis alone does. In the long form, it sends a million requests.
func TestWalk(t *testing.T) {
	t.Parallel()
	for range testenv.Steps(800, 20_000) {
		seed := cmp.Or(*onlySeed, rand.Uint64())
		w := walk{random: rand.New(rand.NewPCG(seed, 0)), now: 1_700_000_000_000_000}
		if difference := follow(t, w.batches()); difference != "" {
			t.Fatalf("to repeat it: -run '%s' -seed %d\n%s", t.Name(), seed, difference)
		}
	}
}

// days begin at other times than those of bucket.FixedWindow.
var days = bucket.NewCalendar("day", time.FixedZone("here", 5400))

// walk is a random sequence of requests to a few buckets.
type walk struct {
	random  *rand.Rand
	now     int64
	buckets []bucket.Take // Key, Limit, and the terms of Hold only
}

func (w *walk) batches() (batches [][]bucket.Request) {
	for i := range 1 + w.random.IntN(4) {
		algorithm := withHolds[w.random.IntN(len(withHolds))]
		window := w.pick(1, 2, 10, 100, 1_000_000, 1_000_003, 60_000_000, 86_400_000_000)
		l := w.limit(algorithm, window)
		switch {
		case algorithm == bucket.Concurrency:
			l.Window = 0
		case algorithm == bucket.FixedWindow && w.random.IntN(2) == 0:
			l.Algorithm, l.Window, l.Calendar = bucket.CalendarWindow, 86_400_000_000, days
		}
		var terms *bucket.Hold
		if algorithm == bucket.Concurrency || w.random.IntN(3) == 0 {
			terms = &bucket.Hold{TTL: w.pick(1, 1_000, 1_000_000, 60_000_000, window), Most: w.pick(1, 3, 1_000)}
			terms.Release = algorithm == bucket.Concurrency || w.random.IntN(2) == 0
		}
		w.buckets = append(w.buckets, bucket.Take{Key: fmt.Sprint(i), Limit: l, Hold: terms})
	}
	for range 25 {
		batch := make([]bucket.Request, 1+w.random.IntN(3))
		for i := range batch {
			batch[i] = w.request()
		}
		batches = append(batches, batch)
	}
	return batches
}

func (w *walk) limit(algorithm bucket.Algorithm, window int64) bucket.Limit {
	return bucket.Limit{
		Algorithm: algorithm, Window: window,
		Requests: w.pick(0, 1, 2, 3, 4, 5, 10, 40, 1000), Burst: w.pick(1, 2, 3, 5, 10, 100),
	}
}

func (w *walk) request() bucket.Request {
	limit := &w.buckets[w.random.IntN(len(w.buckets))].Limit
	window, edge := limit.Window, int64(1)
	if limit.Algorithm == bucket.Concurrency {
		window = 1_000_000
	} else {
		_, end := limit.WindowAt(w.now)
		edge = end - w.now
	}
	if w.random.IntN(20) == 0 {
		w.now -= w.pick(1, 2, 1000, 1_000_000, bucket.MaxClockStep-1, bucket.MaxClockStep, bucket.MaxClockStep+1,
			3_600_000_000, w.random.Int64N(3_000_000))
	} else {
		w.now += w.pick(0, 0, 0, 1, 1, 2, window-1, window, window+1, 2*window, edge-1, edge, edge+1, window/2, window/3,
			1_000_000, 20_000_000, w.random.Int64N(window))
	}
	r := bucket.Request{At: w.now}
	for range w.pick(1, 1, 1, 2, 3) {
		b := &w.buckets[w.random.IntN(len(w.buckets))]
		if w.random.IntN(15) == 0 {
			calendar := b.Limit.Calendar
			b.Limit = w.limit(b.Limit.Algorithm, b.Limit.Window)
			b.Limit.Calendar = calendar
		}
		r.Add(w.take(*b))
	}
	return r
}

func (w *walk) take(t bucket.Take) bucket.Take {
	capacity := t.Limit.Capacity()
	t.CountDenied, t.Role = w.random.IntN(4) == 0, bucket.Role(w.pick(0, 0, 0, 1, 2))
	t.Cost = uint64(w.pick(0, 1, 1, 1, 2, 3, capacity/2, capacity, capacity+1, 2*capacity, 2*capacity+1))
	if t.Hold != nil {
		t.Hold = w.hold(*t.Hold, t.Limit)
	}
	switch w.random.IntN(8) {
	case 0:
		t.Cost, t.Need = 0, 1
	case 1:
		t.Need = t.Cost + 1
	case 2:
		t.Refund = uint64(w.pick(1, 2, capacity))
	}
	if t.Limit.Algorithm.HasQueue() && w.random.IntN(3) == 0 {
		t.Queue(w.pick(0, 1, 2, 3, capacity, 10*capacity))
	}
	return t
}

// hold asks for holds under one of a few ids. Undos name any expiry, and most find none.
func (w *walk) hold(h bucket.Hold, l bucket.Limit) *bucket.Hold {
	for range w.pick(0, 0, 1, 1, 2) {
		c := bucket.HoldCost{ID: bucket.HoldID{byte(w.random.IntN(4))}}
		c.Cost = uint64(w.pick(0, 1, 1, 2, l.Requests/2, l.Requests, 2*l.Requests+1))
		switch w.random.IntN(5) {
		case 0, 1:
			h.Settles = append(h.Settles, c)
		case 2:
			c.Expires = w.now + h.TTL
			h.Settles = append(h.Settles, c)
		default:
			h.Reserves = append(h.Reserves, c)
		}
	}
	return &h
}

func (w *walk) pick(choices ...int64) int64 { return choices[w.random.IntN(len(choices))] }
