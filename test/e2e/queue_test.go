package e2e

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// The buckets with max_delay in testdata/policy.yaml: one request leaves in every interval.
const (
	interval = 200 * time.Millisecond
	fit      = 6 // one leaves at once, and five are in the queue
)

// TestQueueRate sends as many requests at once as a leaky bucket and its queue hold. All are allowed, and they leave
// at the rate of the bucket.
func TestQueueRate(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	report := get("/reports/1", s.issuer.bearer(t, nil))
	answers := make([]answer, fit)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range answers {
		group.Go(func() { answers[i] = s.do(t, report) })
	}
	group.Wait()
	for i, a := range answers {
		if a.status != http.StatusOK {
			t.Errorf("request %d: got %d %s, want 200", i, a.status, a.body)
		}
	}
	wantRate(t, begin, answers)
	if n := s.Stat("cluster.application.ext_authz.error"); n != 0 {
		t.Errorf("ext_authz.error: got %d, want 0: no request may be held longer than Envoy waits", n)
	}
}

// TestQueueAfterBurst sends as many requests at once as a token bucket lets pass at once and holds. All are allowed,
// and those beyond the burst leave at the rate of the bucket.
func TestQueueAfterBurst(t *testing.T) {
	t.Parallel()
	const burst, queue = 3, 5
	s := startShop(t)
	request := get("/bursts/1", s.issuer.bearer(t, nil))
	answers := make([]answer, burst+queue)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range answers {
		group.Go(func() { answers[i] = s.do(t, request) })
	}
	group.Wait()
	var held []answer
	for i, a := range answers {
		if a.status != http.StatusOK {
			t.Errorf("request %d: got %d %s, want 200", i, a.status, a.body)
		}
		if a.end.Sub(begin) >= interval {
			held = append(held, a)
		}
	}
	if len(held) < queue {
		t.Errorf("%d requests were held for an interval or longer, want %d", len(held), queue)
	}
	// A request that is decided an interval late on a busy machine needs not be held.
	if n := s.service.metric(t, "extauthz_authz_delayed_total"); n < 1 || n > queue {
		t.Errorf("%d answers were held, want at most the %d beyond the burst", n, queue)
	}
	slices.SortFunc(answers, func(a, b answer) int { return a.end.Compare(b.end) })
	wantRate(t, begin.Add(interval), answers[burst:])
}

// TestQueueDenies sends one request more than a leaky bucket and its queue hold. The last request is denied while the
// one before it is still held.
func TestQueueDenies(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	slow := get("/slow/1", s.issuer.bearer(t, nil))
	if a := s.do(t, slow); a.status != http.StatusOK {
		t.Fatalf("the first: got %d %s, want 200", a.status, a.body)
	}
	ctx, giveUp := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer giveUp()
	group.Go(func() {
		resp, err := new(http.Transport).RoundTrip(s.request(t, slow).WithContext(ctx))
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("the second: got %d, want it held for half a minute", resp.StatusCode)
		}
	})
	held := func() int { return s.service.metric(t, "extauthz_authz_held") }
	testenv.Eventually(t, func() error {
		if n := held(); n != 1 {
			return fmt.Errorf("%d requests are held", n)
		}
		return nil
	}, "the second request to be held")
	a := s.do(t, slow)
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("the third: got %d %v, want 429 and a retry-after", a.status, a.header)
	}
	if n := held(); n != 1 {
		t.Errorf("after the answer to the third: %d requests are held, want only the second", n)
	}
}

// wantRate checks that requests left no faster than the rate allows.
func wantRate(t *testing.T, begin time.Time, answers []answer) {
	t.Helper()
	for _, a := range answers {
		left := 0
		for _, b := range answers {
			if !b.end.After(a.end) {
				left++
			}
		}
		if after := a.end.Sub(begin); after < time.Duration(left-1)*interval {
			t.Errorf("%d requests had left after %v, want not before %v", left, after, time.Duration(left-1)*interval)
		}
	}
}

// TestQueueOrder sends requests one by one, each after the previous one is in the queue. They leave in this order.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	report := get("/reports/1", s.issuer.bearer(t, nil))
	answers := make([]answer, fit)
	var group sync.WaitGroup
	var sent, left atomic.Int64
	held := func() int { return s.service.metric(t, "extauthz_authz_held") }
	begin := time.Now()
	for i := range answers {
		sent.Add(1)
		group.Go(func() {
			answers[i] = s.do(t, report)
			// All earlier requests have left the queue by now, so only later ones can be in it. The order in which the
			// clients continue does not matter.
			if now := held(); now > int(sent.Load())-i-1 {
				t.Errorf("request %d left while %d of %d were held", i, now, sent.Load())
			}
			left.Add(1)
		})
		testenv.Eventually(t, func() error {
			if there := held() + int(left.Load()); there <= i {
				return fmt.Errorf("%d requests are held or have left", there)
			}
			return nil
		}, fmt.Sprintf("request %d to be held", i))
	}
	group.Wait()
	for i, a := range answers {
		if a.status != http.StatusOK {
			t.Fatalf("request %d: got %d %s, want 200", i, a.status, a.body)
		}
	}
	wantRate(t, begin, answers)
}

// queueRules have two rules; a client chooses the buckets of the first. Their requests wait for a minute.
const queueRules = `
domain: sample
authz:
  anonymous: allow
  limits:
    - actions: [{ request_headers: { header: x-device-id, key: device } }]
    - actions: [{ header_value_match: { header: x-own, key: own, value: "yes" } }]
descriptors:
  - key: device
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: leaky_bucket, burst: 2, max_delay: 60s }
  - key: own
    rate_limit: { unit: minute, requests_per_unit: 1, algorithm: leaky_bucket, burst: 2, max_delay: 60s }
`

// TestQueueOfOneRule has a client that chooses header values, and with them its buckets. It takes half of the places.
// An early request of another rule is still held.
func TestQueueOfOneRule(t *testing.T) {
	for _, c := range []struct {
		name        string
		environment func(t *testing.T) []string
	}{
		{"memory", func(*testing.T) []string { return nil }},
		{"Redis", func(t *testing.T) []string {
			return []string{"REDIS_URL=redis://" + testenv.Redis(t).Addr, "REDIS_TIMEOUT=" + longTimeout}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, _ := rulesDirectory(t, queueRules)
			service := startService(t, append(c.environment(t), "RUNTIME_ROOT="+root, "AUTHZ_MAX_HELD=8")...)
			patient := func(_ *testing.T, config string) string { return strings.ReplaceAll(config, longTimeout, "120s") }
			envoy := startEnvoy(t, service.grpcPort, patient)
			ctx, giveUp := context.WithCancel(t.Context())
			var waiting sync.WaitGroup
			defer waiting.Wait()
			defer giveUp()
			var denied atomic.Int64
			held := func(want int) {
				t.Helper()
				testenv.Eventually(t, func() error {
					if n := service.metric(t, "extauthz_authz_held"); n != want {
						return fmt.Errorf("%d requests are held", n)
					}
					return nil
				}, fmt.Sprint(want, " requests to be held"))
			}
			send := func(header [2]string) {
				waiting.Go(func() {
					resp, err := new(http.Transport).RoundTrip(envoy.request(t, get("/", header)).WithContext(ctx))
					if err != nil {
						return // given up while it was held
					}
					_ = resp.Body.Close()
					if resp.StatusCode != http.StatusTooManyRequests {
						t.Errorf("%v: got %d, want it held or denied", header, resp.StatusCode)
					}
					denied.Add(1)
				})
			}
			const devices = 12
			for i := range devices {
				device := [2]string{"x-device-id", fmt.Sprint(i)}
				if a := envoy.do(t, get("/", device)); a.status != http.StatusOK {
					t.Fatalf("the first of device %d: got %d %s, want 200", i, a.status, a.body)
				}
				send(device)
			}
			held(4)
			testenv.Eventually(t, func() error {
				if n := denied.Load(); n != devices-4 {
					return fmt.Errorf("%d requests are denied", n)
				}
				return nil
			}, "all others to be denied")
			own := [2]string{"x-own", "yes"}
			if a := envoy.do(t, get("/", own)); a.status != http.StatusOK {
				t.Fatalf("the first of another rule: got %d %s, want 200", a.status, a.body)
			}
			send(own)
			held(5)
		})
	}
}
