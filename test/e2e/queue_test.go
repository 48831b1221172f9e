package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/testenv"
)

// The leaky bucket with max_delay of testdata/policy.yaml: one request leaves every interval.
const (
	interval = 200 * time.Millisecond
	fit      = 6 // one at once and five in the queue
)

// TestQueueRate sends more requests at once than a leaky bucket lets go at once: they leave at its rate, and what can not make it
// in time is denied before any time has passed.
func TestQueueRate(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	report := get("/reports/1", s.issuer.bearer(t, nil))
	answers := make([]answer, fit+3)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range answers {
		group.Go(func() { answers[i] = s.do(t, report) })
	}
	group.Wait()

	var let, denied []answer
	for _, a := range answers {
		switch a.status {
		case http.StatusOK:
			let = append(let, a)
		case http.StatusTooManyRequests:
			denied = append(denied, a)
		default:
			t.Fatalf("got %d %s, want 200 or 429", a.status, a.body)
		}
	}
	if len(denied) == 0 {
		t.Fatal("all were let, want some denied at once")
	}
	var deciding time.Duration // how long it took to decide about all of them
	for _, a := range denied {
		deciding = max(deciding, a.end.Sub(begin))
		if a.header.Get("Retry-After") == "" || a.elapsed > fit*interval/2 {
			t.Errorf("denied after %v with %v, want at once and a retry-after", a.elapsed, a.header)
		}
	}
	// Of those that a slow machine sends late, one more fits for each interval.
	if most := fit + int(deciding/interval); len(let) < fit || len(let) > most {
		t.Errorf("got %d let and %d denied; want %d let", len(let), len(denied), fit)
	}
	wantRate(t, begin, let)
	if n := s.Stat("cluster.application.ext_authz.error"); n != 0 {
		t.Errorf("ext_authz.error: got %d, want 0: nothing may be held for longer than Envoy waits", n)
	}
}

// wantRate checks that at no time more requests have left than the rate allows.
func wantRate(t *testing.T, begin time.Time, let []answer) {
	t.Helper()
	for _, a := range let {
		left := 0
		for _, b := range let {
			if !b.end.After(a.end) {
				left++
			}
		}
		if after := a.end.Sub(begin); after < time.Duration(left-1)*interval {
			t.Errorf("%d had left after %v, want not before %v", left, after, time.Duration(left-1)*interval)
		}
	}
}

// TestQueueOrder sends requests one after the other, each when the one before it is in the queue: they leave in this order.
func TestQueueOrder(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	report := get("/reports/1", s.issuer.bearer(t, nil))
	answers := make([]answer, fit)
	var group sync.WaitGroup
	var left atomic.Int64
	begin := time.Now()
	for i := range answers {
		group.Go(func() {
			answers[i] = s.do(t, report)
			left.Add(1)
		})
		testenv.Eventually(t, func() error {
			if there := s.service.metric(t, "extauthz_authz_held") + int(left.Load()); there <= i {
				return fmt.Errorf("%d requests are held or have left", there)
			}
			return nil
		}, fmt.Sprintf("request %d to be held", i))
	}
	group.Wait()
	for i, a := range answers {
		if a.status != http.StatusOK {
			t.Fatalf("number %d: got %d %s, want 200", i, a.status, a.body)
		}
		if i > 0 && a.end.Before(answers[i-1].end) {
			t.Errorf("number %d left %v before the one in front of it", i, answers[i-1].end.Sub(a.end))
		}
	}
	wantRate(t, begin, answers)
}
