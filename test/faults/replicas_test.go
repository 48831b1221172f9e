package faults

import (
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// three is the number of replicas of these tests.
const three = 3

// inOutage returns the number of requests during an outage of several replicas: enough to use up their shares.
func inOutage() int {
	if long() {
		return 5 * rate
	}
	return 3 * rate
}

// startThree starts three replicas whose client usedUp has nothing left.
func startThree(t *testing.T) (*testenv.RedisServer, []*replica, *load) {
	t.Helper()
	redis := testenv.Redis(t)
	replicas := startReplicas(t, three, redis)
	l := newLoad(t, replicas...)
	l.exhaust(0, usedUp)
	return redis, replicas, l
}

// run sends n requests to these replicas, and returns after all are answered.
func (l *load) run(n int, replicas ...int) {
	stop := l.start(replicas...)
	l.await(n)
	stop()
}

// peekAll has each replica see the last charge of each client. In the first round, replicas may still charge what they
// owe.
func (l *load) peekAll() {
	for range 2 {
		for i := range l.services {
			for c := range clients {
				l.peek(i, c)
			}
		}
	}
}

// TestReplicasThatSawEverything has Redis stop while three replicas know all charges. They divide what is left.
func TestReplicasThatSawEverything(t *testing.T) {
	t.Parallel()
	redis, replicas, l := startThree(t)
	before, _, after := phases()
	l.run(before, 0, 1, 2)
	l.peekAll()
	redis.Pause()
	l.run(inOutage(), 0, 1, 2)
	l.check(replicas, func(client) int { return three - 1 })
	back := time.Now()
	redis.Resume()
	l.run(after, 0, 1, 2)
	l.check(replicas, func(c client) int { return three - 1 + l.beforeCaughtUp(c, back, 0, 1, 2) })
}

// TestReplicaThatSawAllTraffic has Redis stop after one of three replicas has used up all limits. The others have never
// seen these buckets and begin with their share of the full limit.
func TestReplicaThatSawAllTraffic(t *testing.T) {
	t.Parallel()
	redis, replicas, l := startThree(t)
	l.exhaust(0, large)
	l.exhaust(0, small)
	redis.Pause()
	l.run(inOutage(), 0, 1, 2)
	redis.Resume()
	_, _, after := phases()
	l.run(after, 0, 1, 2)
	l.check(replicas, func(c client) int { return c.limit() - c.limit()/three + three - 1 })
}

// TestReplicasCutOff cuts some of three replicas off from Redis. Redis admits the limit, and each of them its share.
func TestReplicasCutOff(t *testing.T) {
	for name, m := range map[string]int{"one of three": 1, "two of three": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, replicas, l := startThree(t)
			before, _, after := phases()
			stop := l.start(0, 1, 2)
			l.await(before / 2)
			for _, r := range replicas[:m] {
				r.proxy.hold()
			}
			l.await(inOutage())
			for _, r := range replicas[:m] {
				r.proxy.release()
			}
			l.await(after)
			stop()
			l.check(replicas, func(c client) int { return m * c.limit() / three })
		})
	}
}

// TestReplicaKilled kills one of three replicas during an outage (SIGKILL). What it owes is lost, at most its share.
func TestReplicaKilled(t *testing.T) {
	t.Parallel()
	redis, replicas, l := startThree(t)
	before, _, after := phases()
	l.run(before, 0, 1, 2)
	l.peekAll()
	var left [clients]int
	for c := range clients {
		left[c] = max(0, c.limit()-l.admitted(c))
	}
	redis.Pause()
	l.run(inOutage(), 0, 1, 2)
	replicas[0].kill(t)
	back := time.Now()
	redis.Resume()
	l.run(after, 1, 2)
	l.check(replicas, func(c client) int {
		share := (left[c] + three - 1) / three
		return three - 1 + share + l.beforeCaughtUp(c, back, 1, 2)
	})
}

// beforeCaughtUp returns how many requests of a client were admitted after an outage before Redis knew what each of
// these replicas had admitted. A replica tells it before its first request that Redis decides.
func (l *load) beforeCaughtUp(c client, since time.Time, replicas ...int) int {
	var last time.Time
	for _, replica := range replicas {
		first := time.Now()
		l.count(c, func(r *request) bool {
			if r.replica == replica && r.decidedBy == "store" && r.sent.After(since) && r.received.Before(first) {
				first = r.received
			}
			return false
		})
		if first.After(last) {
			last = first
		}
	}
	return l.count(c, func(r *request) bool { return r.allowed && r.received.After(since) && r.sent.Before(last) })
}
