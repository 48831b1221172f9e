package e2e

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestQueue sends more requests at once than a leaky bucket with max_delay lets go at once: one every 200 ms leaves, in order, and
// what can not make it in time is denied before any time has passed.
func TestQueue(t *testing.T) {
	t.Parallel()
	const (
		interval = 200 * time.Millisecond
		fit      = 6 // one at once and five in the queue
		sent     = 9
	)
	s := startShop(t)
	report := get("/reports/1", s.issuer.bearer(t, nil))

	answers := make([]answer, sent)
	var group sync.WaitGroup
	begin := time.Now()
	for i := range answers {
		group.Go(func() { answers[i] = s.do(t, report) })
	}
	group.Wait()
	slices.SortFunc(answers, func(a, b answer) int { return int(a.end.Sub(b.end)) })

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
	// Of those that a slow machine sends late, one more fits for every 200 ms.
	if most := fit + int(denied[len(denied)-1].end.Sub(begin)/interval); len(let) < fit || len(let) > most {
		t.Errorf("got %d let and %d denied; want %d let", len(let), len(denied), fit)
	}
	for i, a := range let {
		if at := a.end.Sub(begin); at < time.Duration(i)*interval {
			t.Errorf("number %d left after %v, want not before %v", i, at, time.Duration(i)*interval)
		}
	}
	for _, a := range denied {
		if a.header.Get("Retry-After") == "" {
			t.Errorf("a denied one has no retry-after: %v", a.header)
		}
		if a.elapsed > interval*fit/2 {
			t.Errorf("denied after %v, want at once", a.elapsed)
		}
	}
	if n := s.Stat("cluster.application.ext_authz.error"); n != 0 {
		t.Errorf("ext_authz.error: got %d, want 0: nothing may be held for longer than Envoy waits", n)
	}
	if took := let[len(let)-1].end.Sub(begin); took < (fit-1)*interval {
		t.Errorf("the last left after %v, want after %v", took, (fit-1)*interval)
	}
}
