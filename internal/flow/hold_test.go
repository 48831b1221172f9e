package flow

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// TestHold checks that answers leave at the rate of the bucket: all but the first of a leaky bucket, and those beyond
// the burst of a token bucket. If all 10 places of the queue are taken, an early request is denied.
func TestHold(t *testing.T) {
	for algorithm, burst := range map[string]int{"leaky_bucket, burst: 600": 1, "token_bucket, burst: 4": 4} {
		t.Run(algorithm, func(t *testing.T) { testHold(t, algorithm, burst) })
	}
}

func testHold(t *testing.T, algorithm string, burst int) {
	synctest.Test(t, func(t *testing.T) {
		server := newLimitFlow(t, `
domain: d
descriptors: [{key: k, rate_limit: {unit: minute, requests_per_unit: 600, algorithm: `+algorithm+`, max_delay: 5s}}]
`, rls.Codec{})
		var all sync.WaitGroup
		begin := time.Now()
		for i := range burst {
			if got := ask(t, server, 0, "k", ""); got != "OK" || time.Since(begin) > 0 {
				t.Errorf("request %d of the burst: %s after %v, want OK at once", i, got, time.Since(begin))
			}
		}
		if got := ask(t, server, 0, "k", ""); got != "OVER_LIMIT" {
			t.Errorf("beyond the burst without a deadline: %s, want OVER_LIMIT", got)
		}
		for i := range 10 {
			all.Go(func() {
				if got := ask(t, server, 10*time.Second, "k", ""); got != "OK" {
					t.Errorf("request %d: %s, want OK", i, got)
				}
			})
			synctest.Wait()
		}
		if got := ask(t, server, 10*time.Second, "k", ""); got != "OVER_LIMIT" || time.Since(begin) > 0 {
			t.Errorf("without a place: %s after %v, want OVER_LIMIT at once", got, time.Since(begin))
		}
		all.Wait()
		if got := time.Since(begin); got != time.Second {
			t.Errorf("the last answer left after %v, want 1 s", got)
		}
		if got := ask(t, server, 0, "k", ""); got != "OVER_LIMIT" {
			t.Errorf("without a deadline: %s, want OVER_LIMIT", got)
		}
	})
}

// TestHoldPerRule has a client that chooses its buckets. It takes the places of one rule, not those of another, and a
// request that finds no place is not charged.
func TestHoldPerRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newHoldFlow(t, `
domain: d
descriptors:
  - {key: k, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: leaky_bucket, max_delay: 5s}}
  - {key: other, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: leaky_bucket, max_delay: 5s}}
`, rls.Codec{}, 6)
		var held sync.WaitGroup
		begin, denied := time.Now(), 0
		wait := func(key, value string) {
			held.Go(func() {
				if got := ask(t, server, 10*time.Second, key, value); got != "OK" {
					t.Errorf("%s=%s: %s, want OK", key, value, got)
				}
			})
			synctest.Wait()
		}
		for i := range 9 {
			value := fmt.Sprint(i)
			wait("k", value) // passes at once
			if i < 6 {
				wait("k", value)
				continue
			}
			for range 3 {
				if got := ask(t, server, 10*time.Second, "k", value); got == "OVER_LIMIT" {
					denied++
				}
			}
		}
		if q := server.cfg.Queue; denied != 9 || q.Held.Load() != 6 || q.NotHeld.Load() != 0 {
			t.Errorf("%d denied, %d held, %d not held; want 9, 6, 0", denied, q.Held.Load(), q.NotHeld.Load())
		}
		wait("other", "")
		wait("other", "")
		if n := server.cfg.Queue.Held.Load(); n != 7 || time.Since(begin) > 0 {
			t.Errorf("after a request to another rule: %d held after %v, want 7 at once", n, time.Since(begin))
		}
		held.Wait()
		if got := time.Since(begin); got != time.Second {
			t.Errorf("the last answer left after %v, want 1 s: a denied request must not be charged", got)
		}
		begin = time.Now()
		for i := range 6 { // all places are free again; the clock of the store stands still
			wait("k", fmt.Sprint(i))
		}
		held.Wait()
		if got := time.Since(begin); got != 2*time.Second {
			t.Errorf("the second queue left after %v, want 2 s", got)
		}
	})
}

// ask returns the overall code of the answer to a request, or its error. timeout is the caller's, 0 for none.
func ask(t *testing.T, server *Flow, timeout time.Duration, key, value string) string {
	t.Helper()
	descriptors := []*ratelimitcommon.RateLimitDescriptor{
		{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}
	message, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "d", Descriptors: descriptors})
	if err != nil {
		return err.Error()
	}
	ctx := t.Context()
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	answer, err := server.Answer(ctx, RateLimit, string(message), http.Header{})
	res := new(ratelimitv3.RateLimitResponse)
	if err == nil {
		err = proto.Unmarshal(answer, res)
	}
	if err != nil {
		return fmt.Sprint("error: ", err)
	}
	return res.GetOverallCode().String()
}
