package redisstore

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// TestBreaker checks which failures open the breaker.
func TestBreaker(t *testing.T) {
	const ms = time.Millisecond
	timeout := &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
	broken := errors.New("EOF")
	// A call begins after pause. It has time for limit, and fails or is answered after took.
	type result struct {
		pause, limit, took time.Duration
		err                error
	}
	many := func(n int, r result) (all []result) {
		for range n {
			all = append(all, r)
		}
		return all
	}
	for name, c := range map[string]struct {
		results []result
		want    bool
	}{
		"4 timeouts":                          {many(4, result{0, 50 * ms, 50 * ms, timeout}), false},
		"5 timeouts":                          {many(5, result{0, 50 * ms, 50 * ms, timeout}), true},
		"5 timeouts of 250 ms":                {many(5, result{0, 250 * ms, 250 * ms, timeout}), true},
		"5 timeouts of 900 ms, with pauses":   {many(5, result{900 * ms, 900 * ms, 900 * ms, timeout}), true},
		"a timeout of 1 s":                    {many(1, result{0, time.Second, time.Second, timeout}), true},
		"timeouts more than 1 s apart":        {many(20, result{1001 * ms, 50 * ms, 50 * ms, timeout}), false},
		"5 broken connections":                {many(5, result{0, 50 * ms, ms, broken}), true},
		"timers that fire late":               {many(20, result{0, 50 * ms, 80 * ms, timeout}), false},
		"timers that fire very late":          {many(20, result{0, 50 * ms, 3 * time.Second, timeout}), false},
		"no time left for a connection, late": {many(20, result{0, 50 * ms, 80 * ms, context.DeadlineExceeded}), false},
		"no connection in time":               {many(5, result{0, 50 * ms, 51 * ms, context.DeadlineExceeded}), true},
		"broken connections, seen late":       {many(5, result{0, 50 * ms, 80 * ms, broken}), true},
		"a reply between timeouts": {append(append(many(4, result{0, 50 * ms, 50 * ms, timeout}),
			result{0, 50 * ms, ms, nil}), many(4, result{0, 50 * ms, 50 * ms, timeout})...), false},
		"late timers between timeouts": {append(append(many(3, result{0, 50 * ms, 50 * ms, timeout}),
			many(3, result{0, 50 * ms, 80 * ms, timeout})...), many(2, result{0, 50 * ms, 50 * ms, timeout})...), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := breaker{changed: func(error) {}}
			for i, r := range c.results {
				if b.open() {
					t.Fatalf("%s: open after %d results", name, i)
				}
				time.Sleep(r.pause)
				sent := time.Now()
				time.Sleep(r.took)
				b.report(r.err, sent, sent.Add(r.limit))
			}
			if b.open() != c.want {
				t.Errorf("%s: open: %t, want %t", name, b.open(), c.want)
			}
		})
	}
}
