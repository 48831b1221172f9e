package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TestGate: of concurrent events, exactly the allowed number passes in each second.
func TestGate(t *testing.T) {
	var gate ratelimit.Gate
	for second := range int64(3) {
		var passed atomic.Int64
		var events sync.WaitGroup
		for range 8 {
			events.Go(func() {
				for range 100 {
					if gate.Pass(second, 10) {
						passed.Add(1)
					}
				}
			})
		}
		events.Wait()
		if n := passed.Load(); n != 10 {
			t.Errorf("%d events passed in second %d, want 10", n, second)
		}
	}
}
