package nearstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// kept is a shared store that keeps its buckets in the order of their keys. It is for one caller at a time.
type kept struct {
	unused
	states []bucket.State
	loaded []bucket.Loaded
}

// digits is the number of digits at the end of a key.
const digits = 8

func numberOf(key string) int {
	n, err := strconv.Atoi(key[len(key)-digits:])
	if err != nil {
		panic(err)
	}
	return n
}

// Start implements nearstore.Shared.
func (k *kept) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	sent := time.Now()
	for i := range requests {
		r, o := &requests[i], &outcomes[i]
		k.loaded = k.loaded[:0]
		for t := range r.Takes {
			k.loaded = append(k.loaded, bucket.Loaded{State: k.states[numberOf(r.Takes[t].Key)]})
		}
		r.Decide(sent.UnixMicro(), k.loaded, o)
		for t := range r.Takes {
			state := k.loaded[t].State
			k.states[numberOf(r.Takes[t].Key)] = state
			reply := bucket.Reply{Clock: sent.UnixMicro(), Sent: sent, Received: sent}
			o.Seen = append(o.Seen, bucket.Seen{State: state, Reply: reply})
		}
	}
}

// BenchmarkTake measures what remembering adds to allowed requests with one take and with ten, of 10,000 buckets.
func BenchmarkTake(b *testing.B) {
	for _, takes := range []int{1, 10} {
		for _, algorithm := range []bucket.Algorithm{bucket.TokenBucket, bucket.FixedWindow, bucket.SlidingWindowCounter} {
			name := fmt.Sprintf("%d %s", takes, algorithm)
			b.Run(name+"/without", func(b *testing.B) { benchmarkTake(b, newKept(), takes, algorithm) })
			b.Run(name+"/near", func(b *testing.B) {
				near, err := nearstore.New(nearstore.Config{Shared: newKept(), DenialCache: true})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = near.Close() })
				benchmarkTake(b, near, takes, algorithm)
			})
		}
	}
}

const keptBuckets = 10_000

func newKept() *kept { return &kept{states: make([]bucket.State, keptBuckets)} }

func benchmarkTake(b *testing.B, store ratelimit.Store, takes int, algorithm bucket.Algorithm) {
	keys := make([]string, keptBuckets)
	for i := range keys {
		keys[i] = fmt.Sprintf("4:shop|7:api_key#%024d", i)
	}
	requests, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
	l := perDay(algorithm, 1_000_000_000)
	random := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		from := random.IntN(keptBuckets - takes)
		requests[0].Takes = requests[0].Takes[:0]
		for _, key := range keys[from : from+takes] {
			requests[0].Takes = append(requests[0].Takes, bucket.Take{Key: key, Limit: l, Cost: 1})
		}
		store.Start(b.Context(), requests, outcomes, func() {}) // decides before it returns
	}
}
