package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

// patient is a timeout for tests in which Redis answers, or refuses at once, and the machine may be busy.
const patient = time.Minute

func TestStore(t *testing.T) {
	server := testenv.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Store {
		return open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	})
}

// open returns a store that ends with the test.
func open(t testing.TB, cfg redisstore.Config) *redisstore.Store {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = patient
	}
	s, err := redisstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func BenchmarkTake(b *testing.B) {
	server := testenv.Redis(b)
	for _, goroutines := range []int{1, 64, 256} {
		for _, keys := range []int{1, 10} {
			b.Run(fmt.Sprintf("goroutines=%d/keys=%d", goroutines, keys), func(b *testing.B) {
				s := open(b, redisstore.Config{URL: server.Addr, Timeout: patient})
				limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1000, Burst: 1000, Window: 60_000_000}
				b.ReportAllocs()
				b.SetParallelism(goroutines / 2) // times GOMAXPROCS, 2 here
				work := func(next func() bool) {
					batch, outcomes := make([]bucket.Request, 1), make([]bucket.Outcome, 1)
					r := &batch[0]
					names := make([]string, 100_000/64)
					for i := range names {
						names[i] = fmt.Sprintf("bench:%06d", rand.IntN(100_000))
					}
					for next() {
						r.Takes = r.Takes[:0]
						for range keys {
							r.Add(bucket.Take{Key: names[rand.IntN(len(names))], Limit: limit, Cost: 1})
						}
						ratelimit.Take(b.Context(), s, batch, outcomes)
						if outcomes[0].Err != nil {
							b.Error(outcomes[0].Err)
							return
						}
					}
				}
				if goroutines == 1 {
					work(b.Loop)
				} else {
					b.RunParallel(func(pb *testing.PB) { work(pb.Next) })
				}
			})
		}
	}
}
