package redisstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// brief is a timeout for tests in which Redis does not answer. On a busy machine, a healthy Redis may not answer
// within it.
const brief = 50 * time.Millisecond

// perDay is a limit that does not refill while a test runs.
func perDay(requests int64) bucket.Limit {
	return bucket.Limit{Algorithm: bucket.TokenBucket, Requests: requests, Burst: requests, Window: 86_400_000_000}
}

func ask(key string, limit bucket.Limit) (r bucket.Request) {
	r.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
	return r
}

func take(ctx context.Context, s *redisstore.Store, batch ...bucket.Request) []bucket.Outcome {
	outcomes := make([]bucket.Outcome, len(batch))
	ratelimit.Take(ctx, s, batch, outcomes)
	return outcomes
}

// takeOne takes one unit from the bucket of the key.
func takeOne(t *testing.T, s *redisstore.Store, key string, limit bucket.Limit) bucket.Outcome {
	t.Helper()
	return take(t.Context(), s, ask(key, limit))[0]
}

// await waits until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if !condition() {
			return errors.New("it has not happened")
		}
		return nil
	}, what)
}

// answers waits until the store answers.
func answers(t *testing.T, s *redisstore.Store) {
	t.Helper()
	await(t, "an answer", func() bool { return takeOne(t, s, "healthy", perDay(1e6)).Err == nil })
}

// healthy waits until the store answers, and requires that it goes on answering. The timeout of the store is patient.
func healthy(t *testing.T, s *redisstore.Store) {
	t.Helper()
	answers(t, s)
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
