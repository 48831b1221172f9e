package redisstore

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLaneForgets has calls in the queue that have ended. No worker connects for them, and they take no room, but one
// that settles is sent.
func TestLaneForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := new(node)
		n.lane.arrived.L = &n.lane.mu
		enter := func(settling bool) *call {
			c := n.newCall(time.Now().Add(time.Second), func() {})
			c.keys, c.settling = 1, settling
			if _, err := n.lane.enter(c); err != nil {
				t.Fatal(err)
			}
			return c
		}
		enter(false).expire()
		var until time.Time
		go func() { until, _ = n.lane.await() }()
		synctest.Wait()
		if !until.IsZero() || n.lane.keys != 0 {
			t.Errorf("with a call that has ended, the worker is to connect until %v, for %d keys", until, n.lane.keys)
		}
		time.Sleep(time.Minute)
		last := enter(false)
		synctest.Wait()
		if !until.Equal(last.until) {
			t.Errorf("a worker is to connect until %v, want %v", until, last.until)
		}
		last.expire()
		settling := enter(true)
		settling.expire()
		if until, _ := n.lane.await(); !until.Equal(settling.until) || n.lane.keys != 1 {
			t.Errorf("for a call that settles, a worker is to connect until %v, want %v", until, settling.until)
		}
	})
}
