package nearstore_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
)

// TestOutageContinuesFromTheLastKnownState is trap T2 with the fallback: what was admitted here is neither forgotten by
// a late answer nor charged twice.
func TestOutageContinuesFromTheLastKnownState(t *testing.T) {
	for _, algorithm := range bucket.Algorithms {
		t.Run(algorithm.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r, l := newReplica(t, s, nearstore.Config{}), perDay(algorithm, 10)
				if got := r.take("k", l, 4); got != 4 {
					t.Fatalf("%d of 4 admitted", got)
				}
				r.link.set(fate{refused: true})
				if got := r.take("k", l, 3); got != 3 {
					t.Errorf("%d of 3 admitted in the outage", got)
				}
				r.link.set(fate{reach: time.Millisecond, back: time.Millisecond})
				if got := r.take("k", l, 5); got != 3 {
					t.Errorf("%d admitted after the outage, want the last 3 of 10", got)
				}
				if used := s.used("k", l); used != 10 {
					t.Errorf("Redis has charged %d, want 10", used)
				}
				time.Sleep(time.Minute)
				if stats := r.Stats(); stats.Owing != 0 || stats.CaughtUp != 3 {
					t.Errorf("%+v, want 3 repaid", stats)
				}
				_ = r.Close()
			})
		})
	}
}
