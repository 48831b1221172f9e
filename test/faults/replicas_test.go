package faults

import (
	"fmt"
	"testing"

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
	redis.Resume()
	l.run(after, 0, 1, 2)
	over := overtook(t, replicas)
	l.check(replicas, func(client) int { return three - 1 + over })
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
	redis.Resume()
	l.run(after, 1, 2)
	over := overtook(t, replicas[1:])
	l.check(replicas, func(c client) int {
		share := (left[c] + three - 1) / three
		return three - 1 + share + over
	})
}

// overtook returns how many units the replicas charged over a limit after an outage: Redis had admitted as many before
// it knew what each replica had admitted. TestCatchUpBeyondTheLimit shows that the next request charges them.
func overtook(t *testing.T, replicas []*replica) (units int) {
	t.Helper()
	for _, r := range replicas {
		testenv.Eventually(t, func() error {
			if n := r.metric(t, "extauthz_fallback_owing_buckets"); n > 0 {
				return fmt.Errorf("%v buckets owe units", n)
			}
			return nil
		}, "a replica to charge what it owes")
		units += int(r.metric(t, `extauthz_fallback_units_total{kind="minted"}`))
	}
	return units
}
