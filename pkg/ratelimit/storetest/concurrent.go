package storetest

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

const goroutines = 64

// Concurrent checks, for every algorithm, that many goroutines together are allowed exactly as much as one would be.
// The stores share their buckets: they are several handles on one store, or several clients of one server.
func Concurrent(t *testing.T, shared ...Store) {
	t.Helper()
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			t.Run("exactly the limit", func(t *testing.T) { exactlyTheLimit(t, algorithm, shared) })
			t.Run("several buckets", func(t *testing.T) { severalBuckets(t, algorithm, shared) })
		})
	}
	for _, algorithm := range []bucket.Algorithm{bucket.TokenBucket, bucket.LeakyBucket} {
		t.Run(algorithm.String()+" while it refills", func(t *testing.T) { whileItRefills(t, algorithm, shared) })
	}
}

// together calls work in many goroutines that start at the same time, each with one of the stores.
func together(shared []Store, work func(goroutine int, store Store)) {
	var all sync.WaitGroup
	ready := make(chan struct{})
	for i := range goroutines {
		all.Go(func() {
			<-ready
			work(i, shared[i%len(shared)])
		})
	}
	close(ready)
	all.Wait()
}

// ask takes from one of the goroutines, and reports errors.
func ask(t *testing.T, store Store, batch ...bucket.Request) []bucket.Outcome {
	outcomes := make([]bucket.Outcome, len(batch))
	ratelimit.Take(t.Context(), store, batch, outcomes)
	for _, o := range outcomes {
		if o.Err != nil {
			t.Errorf("take: %v", o.Err)
		}
	}
	return outcomes
}

// exactlyTheLimit sends more requests than the limit, alone and in batches. Exactly as many as the limit are allowed.
func exactlyTheLimit(t *testing.T, algorithm bucket.Algorithm, shared []Store) {
	const limit, each = 500, 12
	key := keyspace(t)
	var allowed atomic.Int64
	together(shared, func(goroutine int, store Store) {
		size := []int{1, 3, each}[goroutine%3]
		for range each / size {
			batch := make([]bucket.Request, size)
			for i := range batch {
				batch[i] = request(bucket.Take{Key: key, Limit: perDecades(algorithm, limit), Cost: 1})
			}
			for _, o := range ask(t, store, batch...) {
				if o.Allowed {
					allowed.Add(1)
				}
			}
		}
	})
	if got := allowed.Load(); got != limit {
		t.Errorf("%d goroutines sent %d requests to one bucket: %d allowed, want %d",
			goroutines, goroutines*each, got, limit)
	}
}

// severalBuckets sends requests with random buckets. Each bucket is charged for exactly the allowed requests.
func severalBuckets(t *testing.T, algorithm bucket.Algorithm, shared []Store) {
	const buckets, each = 5, 12
	run := keyspace(t)
	limit := func(b int) int64 { return int64(60 + 40*b) }
	var charged [buckets]atomic.Int64
	together(shared, func(_ int, store Store) {
		for range each {
			r, chosen := bucket.Request{}, rand.Perm(buckets)[:3]
			for _, b := range chosen {
				r.Add(bucket.Take{
					Key: name(run, b), Limit: perDecades(algorithm, limit(b)), Cost: uint64(1 + rand.IntN(3)),
				})
			}
			if ask(t, store, r)[0].Allowed {
				for i, b := range chosen {
					charged[b].Add(int64(r.Takes[i].Cost))
				}
			}
		}
	})
	for b := range buckets {
		// Alone, because a denial may tell of other buckets what it knows of them. It counts denials, so that no replica
		// answers from what it remembers: a charge that was given back elsewhere may be part of that for a second.
		peek := bucket.Take{Key: name(run, b), Limit: perDecades(algorithm, limit(b)), Need: 1, CountDenied: true}
		peeked := take(t, shared[0], request(peek))[0]
		if peeked.Err != nil {
			t.Fatal(peeked.Err)
		}
		if got, want := peeked.Decisions[0].Remaining, limit(b)-charged[b].Load(); got != want {
			t.Errorf("bucket %d of limit %d: allowed requests cost %d, but %d remain, want %d",
				b, limit(b), limit(b)-want, got, want)
		}
	}
}

// whileItRefills checks that no more requests are allowed than the burst and the units that refill during the test. The
// store's clock may differ from the test's by a millisecond.
func whileItRefills(t *testing.T, algorithm bucket.Algorithm, shared []Store) {
	const duration, slack = 100 * time.Millisecond, time.Millisecond
	limit := bucket.Limit{Algorithm: algorithm, Requests: 2000, Window: 1_000_000, Burst: 50}
	key := keyspace(t)
	var asked, allowed atomic.Int64
	start := time.Now()
	together(shared, func(_ int, store Store) {
		for time.Since(start) < duration {
			asked.Add(1)
			if ask(t, store, request(bucket.Take{Key: key, Limit: limit, Cost: 1}))[0].Allowed {
				allowed.Add(1)
			}
		}
	})
	took := time.Since(start) + slack
	most := limit.Burst + limit.Requests*took.Microseconds()/limit.Window
	least := min(limit.Burst, asked.Load()) // a busy machine asks less
	if got := allowed.Load(); got > most || got < least {
		t.Errorf("a burst of %d and %d a second for %v: %d allowed, want %d to %d", limit.Burst, limit.Requests, took, got,
			least, most)
	}
}

// name returns the key of the i-th bucket of a test.
func name(run string, i int) string { return fmt.Sprintf("%s/%d", run, i) }
