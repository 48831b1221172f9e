package redisstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

// bare is the script alone: one call of Take is one EVALSHA, whatever its size.
type bare struct {
	client *redis.Client
	sha    string
	calls  atomic.Int64
	ahead  time.Duration // how far its clock is ahead of that of Redis
}

func newBare(t testing.TB, addr string) *bare {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, MaxRetries: -1, ReadTimeout: -1, WriteTimeout: -1, DisableIdentity: true,
	})
	t.Cleanup(func() { _ = client.Close() })
	sha, err := client.ScriptLoad(context.Background(), bucket.Script()).Result()
	if err != nil {
		t.Fatal(err)
	}
	return &bare{client: client, sha: sha}
}

func (b *bare) Start(ctx context.Context, batch []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	if err := b.take(ctx, batch, outcomes); err != nil {
		for i := range outcomes {
			outcomes[i].Err = err
		}
	}
}

// command returns the keys and the takes of a batch.
func (b *bare) command(batch []bucket.Request) (keys []string, args []byte) {
	var notes []string
	for _, r := range batch {
		for i := range r.Takes {
			t := &r.Takes[i]
			if keys = append(keys, t.Key); t.Noted() {
				notes = append(notes, "note:"+t.Key)
			}
			if t.Holding() {
				notes = append(notes, "holds:"+t.Key)
			}
		}
		args = r.AppendArgs(args, bucket.WithNotes, time.Now().Add(b.ahead).UnixMicro())
	}
	slices.Reverse(notes)
	return append(keys, notes...), args
}

func (b *bare) take(ctx context.Context, batch []bucket.Request, outcomes []bucket.Outcome) error {
	keys, args := b.command(batch)
	nonce := strconv.FormatInt(b.calls.Add(1), 10)
	reply, err := b.client.EvalSha(ctx, b.sha, keys, nonce, args).Text()
	if err != nil {
		return err
	}
	lines := strings.Split(reply, "\n")
	echo, clock, _ := strings.Cut(lines[0], " ")
	now, err := strconv.ParseInt(clock, 10, 64)
	if err != nil || echo != nonce || len(lines) != 1+len(batch) {
		return fmt.Errorf("nonce %s, %d requests: got %q", nonce, len(batch), reply)
	}
	for i, r := range batch {
		if err := r.Decode(lines[1+i], bucket.Reply{Clock: now}, &outcomes[i]); err != nil {
			outcomes[i].Err = err
		}
	}
	return nil
}

// TestExpiry checks that Redis drops a bucket soon after its state has no effect, but not before. It does so after each
// of several charges, because most of them leave the expiry as it is.
func TestExpiry(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	for _, algorithm := range bucket.Algorithms {
		for _, window := range []int64{1, 999, 1_000_000, 60_000_000, 365 * 86_400_000_000, bucket.MaxWindow} {
			for _, requests := range []int64{3, 30} {
				limit := bucket.Limit{Algorithm: algorithm, Requests: requests, Burst: requests / 3, Window: window}
				if err := limit.Check(); err != nil {
					t.Fatal(err)
				}
				for range requests {
					script.checkExpiry(t, fmt.Sprint(algorithm, window, requests), limit)
				}
			}
		}
	}
}

// TestExpiryOfOthers checks the expiry of a bucket that an earlier version has written. It set the expiry to a second
// after the use, and a millisecond.
func TestExpiryOfOthers(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	for range 500 {
		key := fmt.Sprint("k", rand.Uint64())
		limit := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 9e6, Window: 1 + rand.Int64N(2_000_000)}
		clock := script.client.Time(t.Context()).Val()
		debt := time.Duration(1+rand.Int64N(5_000_000)) * time.Microsecond
		text := fmt.Sprintf("b1 %d %d", clock.UnixMicro(), debt.Microseconds())
		if err := script.client.Do(t.Context(), "SET", key, text, "PXAT", clock.Add(debt+time.Second+time.Millisecond).
			UnixMilli()).Err(); err != nil {
			t.Fatal(err)
		}
		script.checkExpiry(t, key, limit)
	}
}

// TestExpiryOfChangedLimits checks the expiry of buckets whose limits change, with refunds and counted denials.
func TestExpiryOfChangedLimits(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	for range 2000 {
		algorithm := bucket.Algorithms[rand.IntN(len(bucket.Algorithms))]
		window := []int64{700_000, 1_000_000, 60_000_000}[rand.IntN(3)]
		limit := bucket.Limit{Algorithm: algorithm, Window: window, Requests: 1 + rand.Int64N(9), Burst: 1 + rand.Int64N(9)}
		var r bucket.Request
		r.Add(bucket.Take{
			Key: fmt.Sprint(algorithm, window), Limit: limit, Cost: rand.Uint64N(4), Refund: rand.Uint64N(3),
			CountDenied: rand.IntN(2) == 0, Role: bucket.Role(rand.IntN(3)),
		})
		script.checkExpiryOf(t, r)
	}
}

// checkExpiry takes a unit from a bucket, and checks when Redis drops the bucket.
func (b *bare) checkExpiry(t *testing.T, key string, limit bucket.Limit) {
	t.Helper()
	b.checkExpiryOf(t, ask(key, limit))
}

// checkExpiryOf checks when Redis drops the bucket of a request, if the request leaves anything in it.
func (b *bare) checkExpiryOf(t *testing.T, r bucket.Request) {
	t.Helper()
	outcomes := make([]bucket.Outcome, 1)
	if ratelimit.Take(t.Context(), b, []bucket.Request{r}, outcomes); outcomes[0].Err != nil {
		t.Fatal(outcomes[0].Err)
	}
	key, limit, end := r.Takes[0].Key, r.Takes[0].Limit, outcomes[0].Decisions[0].ExpireAt
	if end == 0 {
		return
	}
	if slack := b.client.Do(t.Context(), "PEXPIRETIME", key).Val().(int64)*1000 - end; slack < 1000 || slack > 5_000_000 {
		t.Errorf("%+v: expires %d µs after its use, %+v", limit, slack, outcomes[0])
	}
}

func TestScript(t *testing.T) {
	server := testenv.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Store { return storetest.Store(newBare(t, server.Addr)) })
}
