package faults

import (
	"os/exec"
	"sync"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// check compares what each client was admitted with its bound: its limit, and what else may pass.
func (l *load) check(replicas []*replica, more func(client) int) {
	l.t.Helper()
	unknown := 0
	for _, r := range replicas {
		unknown += r.unknownOutcomes(l.t)
	}
	for c := range clients {
		bound := c.limit() + unknown + more(c)
		got := l.admitted(c)
		l.t.Logf("%s, %v: %d admitted of %d, at most %d (%d of unknown outcome, %d more); decided by %v",
			l.t.Name(), c, got, c.limit(), bound, unknown, more(c), l.deciders(c))
		if got > bound {
			l.t.Errorf("%v: %d requests were admitted, want at most %d", c, got, bound)
		}
	}
	l.logTimes()
}

// TestStarved has no fault. The service, the proxy and their callers have too little CPU, so that answers of Redis come
// after the time limit.
func TestStarved(t *testing.T) {
	replicas := startReplicas(t, 1, testenv.Redis(t))
	l := newLoad(t, replicas...)
	l.exhaust(0, usedUp)
	for range 2 {
		testenv.Start(t, exec.Command("sh", "-c", "while :; do :; done"), func() error { return nil })
	}
	perCaller := 200
	if long() {
		perCaller = 600
	}
	var callers sync.WaitGroup
	for i := range 64 {
		callers.Go(func() {
			for n := range perCaller {
				l.ask(0, client((i+n)%int(clients)))
			}
		})
	}
	callers.Wait()
	l.check(replicas, func(client) int { return 0 })
}

// TestOutage has Redis stop answering in different ways, for a while, under load.
func TestOutage(t *testing.T) {
	for name, fault := range map[string]struct {
		begin, end func(t *testing.T, redis *testenv.RedisServer, r *replica)
	}{
		"stopped": {
			func(_ *testing.T, redis *testenv.RedisServer, _ *replica) { redis.Pause() },
			func(_ *testing.T, redis *testenv.RedisServer, _ *replica) { redis.Resume() },
		},
		"black hole": {
			func(_ *testing.T, _ *testenv.RedisServer, r *replica) { r.proxy.hold() },
			func(_ *testing.T, _ *testenv.RedisServer, r *replica) { r.proxy.release() },
		},
		"busy": {
			func(_ *testing.T, redis *testenv.RedisServer, _ *replica) {
				go func() { _, _ = redis.Do("EVAL", "while true do end", "0") }() // SCRIPT KILL ends it
			},
			func(t *testing.T, redis *testenv.RedisServer, _ *replica) {
				if _, err := redis.Do("SCRIPT", "KILL"); err != nil {
					t.Error(err)
				}
			},
		},
		"killed and started empty": {
			func(_ *testing.T, redis *testenv.RedisServer, _ *replica) { redis.Kill() },
			func(_ *testing.T, redis *testenv.RedisServer, _ *replica) { redis.Restart() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			redis := testenv.Redis(t, "--busy-reply-threshold", "100")
			replicas := startReplicas(t, 1, redis)
			l := newLoad(t, replicas...)
			l.exhaust(0, usedUp)
			before, during, after := phases()
			stop := l.start(0)
			l.await(before)
			fault.begin(t, redis, replicas[0])
			var inFlight [clients]int
			for c := range clients {
				inFlight[c] = l.inFlight(c)
			}
			l.await(during)
			fault.end(t, redis, replicas[0])
			l.await(after)
			stop()
			over := overtook(t, replicas)
			l.check(replicas, func(c client) int { return inFlight[c] + over })
		})
	}
}
