package faults

import (
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// loss is the time in which Redis lost its state.
type loss struct{ begin, end time.Time }

// TestFlushed empties Redis five times under load. A replica learns of a loss from the first reply after it, so only
// what was on the wire until then can pass once more.
func TestFlushed(t *testing.T) {
	t.Parallel()
	redis := testenv.Redis(t)
	replicas := startReplicas(t, 1, redis)
	l := newLoad(t, replicas...)
	l.exhaust(0, usedUp)
	between := rate / 2
	if long() {
		between = rate
	}
	stop := l.start(0)
	l.await(2 * between)
	var losses []loss
	for range 5 {
		begin := time.Now()
		if _, err := redis.Do("FLUSHALL"); err != nil {
			t.Error(err)
		}
		losses = append(losses, loss{begin, time.Now()})
		l.await(between)
	}
	l.await(2 * between)
	stop()
	l.check(replicas, func(c client) (n int) {
		for i := range losses {
			n += l.oneRoundTrip(c, &losses[i])
		}
		return n
	})
}

// oneRoundTrip returns how many admitted requests of a client were on their way at a loss, or were sent before the
// first answer of Redis to a later one.
func (l *load) oneRoundTrip(c client, at *loss) int {
	l.mu.Lock()
	var noticed time.Time
	for _, r := range l.requests {
		if r.client == c && r.decidedBy == "store" && r.sent.After(at.end) &&
			(noticed.IsZero() || r.received.Before(noticed)) {
			noticed = r.received
		}
	}
	l.mu.Unlock()
	return l.count(c, func(r *request) bool {
		return r.allowed && r.received.After(at.begin) && (noticed.IsZero() || r.sent.Before(noticed))
	})
}
