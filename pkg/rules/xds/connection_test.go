package xds

import (
	"testing"
	"time"
)

// TestBackoff doubles the wait up to the maximum, and varies it by the share of the jitter.
func TestBackoff(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 3} { // more than 1 counts as 1
		b := Backoff{Initial: 10 * time.Second, Max: time.Minute, Jitter: jitter}
		for failures, want := range []time.Duration{10, 20, 40, 60, 60, 60} {
			share := min(jitter, 1)
			least, most := float64(want*time.Second)*(1-share), float64(want*time.Second)*(1+share)
			for range 100 {
				if got := float64(b.wait(failures)); got < least || got > most {
					t.Errorf("jitter %g, after %d failures: %v", jitter, failures, time.Duration(got))
				}
			}
		}
	}
}
