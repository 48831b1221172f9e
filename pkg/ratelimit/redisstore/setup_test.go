package redisstore_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// brief is a timeout for tests in which Redis is not well. An answer may come later than that when the machine is busy, but
// not by a minute.
const (
	brief = 200 * time.Millisecond
	late  = time.Minute
)

// perDay is a limit that does not refill while a test runs.
func perDay(requests int64) bucket.Limit {
	return bucket.Limit{Algorithm: bucket.TokenBucket, Requests: requests, Burst: requests, Window: 86_400_000_000}
}

func ask(key string, limit bucket.Limit) *bucket.Request {
	r := &bucket.Request{}
	r.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
	return r
}

// takeOne asks for one unit of the key and checks that the answer does not come late.
func takeOne(t *testing.T, s *redisstore.Store, key string, limit bucket.Limit) *bucket.Request {
	t.Helper()
	r := ask(key, limit)
	start := time.Now()
	s.Take(t.Context(), []*bucket.Request{r})
	if took := time.Since(start); took > late {
		t.Errorf("an answer after %v", took)
	}
	return r
}

// await polls until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(late); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", late, what)
		}
	}
}

// healthy waits until the store answers, and wants it to go on answering from then on.
func healthy(t *testing.T, s *redisstore.Store) {
	t.Helper()
	await(t, "an answer", func() bool { return takeOne(t, s, "healthy", perDay(1e6)).Err == nil })
	for i := range 100 {
		if err := takeOne(t, s, "healthy", perDay(1e6)).Err; err != nil {
			t.Fatalf("request %d after Redis is well again: %v", i, err)
		}
	}
}

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}
