package redisstore_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
)

// bare is the script alone: one call of Take is one EVALSHA, whatever its size.
type bare struct {
	client *redis.Client
	sha    string
	calls  atomic.Int64
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

func (b *bare) take(ctx context.Context, batch []bucket.Request, outcomes []bucket.Outcome) error {
	var keys, notes []string
	var args []byte
	for _, r := range batch {
		for i := range r.Takes {
			t := &r.Takes[i]
			if keys = append(keys, t.Key); t.Noted() {
				notes = append(notes, "note:"+t.Key)
			}
		}
		args = r.AppendArgs(args, bucket.WithNotes)
	}
	slices.Reverse(notes)
	keys = append(keys, notes...)
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

// TestExpiry checks that Redis drops a bucket soon after its state has no effect, but not before.
func TestExpiry(t *testing.T) {
	script := newBare(t, testenv.Redis(t).Addr)
	for _, algorithm := range bucket.Algorithms {
		for _, window := range []int64{1, 999, 1_000_000, 60_000_000, 365 * 86_400_000_000, bucket.MaxWindow} {
			var r bucket.Request
			r.Add(bucket.Take{Key: fmt.Sprint(algorithm, window), Limit: bucket.Limit{
				Algorithm: algorithm, Requests: 3, Burst: 1, Window: window,
			}, Cost: 1})
			if err := r.Takes[0].Limit.Check(); err != nil {
				t.Fatal(err)
			}
			outcomes := make([]bucket.Outcome, 1)
			if ratelimit.Take(t.Context(), script, []bucket.Request{r}, outcomes); outcomes[0].Err != nil {
				t.Fatal(outcomes[0].Err)
			}
			expires := script.client.Do(t.Context(), "PEXPIRETIME", r.Takes[0].Key).Val().(int64) * 1000
			if slack := expires - outcomes[0].Decisions[0].ExpireAt; slack < 0 || slack > 5_000_000 {
				t.Errorf("%s, a window of %d µs: expires %d µs after its use", algorithm, window, slack)
			}
		}
	}
}

func TestScript(t *testing.T) {
	server := testenv.Redis(t)
	storetest.Run(t, func(t *testing.T) storetest.Store { return storetest.Store(newBare(t, server.Addr)) })
}
