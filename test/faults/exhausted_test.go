package faults

import (
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestExhausted asks 5,000 times a second for a client that is over its limit, and counts the script calls of Redis.
func TestExhausted(t *testing.T) {
	const (
		perSecond = 5000
		callers   = 50
	)
	seconds := 2
	if long() {
		seconds = 10
	}
	redis := testenv.Redis(t)
	replicas := startReplicas(t, 1, redis)
	l := newLoad(t, replicas...)
	l.exhaust(0, usedUp)
	before := scriptCalls(t, redis)
	begin := time.Now()
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			tick := time.NewTicker(time.Second * callers / perSecond)
			defer tick.Stop()
			for range seconds * perSecond / callers {
				<-tick.C
				if l.ask(0, usedUp) {
					t.Error("a request over the limit was admitted")
				}
			}
		})
	}
	all.Wait()
	requests := seconds * perSecond
	calls := scriptCalls(t, redis) - before
	t.Logf("%s: %d script calls for %d requests, %.0f a second", t.Name(), calls, requests,
		float64(requests)/time.Since(begin).Seconds())
	if calls*100 >= requests {
		t.Errorf("%d script calls for %d requests, want less than one for 100", calls, requests)
	}
	const cached = `ratelimit_service_rate_limit_over_limit_with_local_cache{domain="faults",key1="client_used_up"}`
	if got, want := int(replicas[0].metric(t, cached)), l.deciders(usedUp)["denial_cache"]; got != want {
		t.Errorf("%s is %d, but %d requests were denied without Redis", cached, got, want)
	}
	l.logTimes()
}

var callsOfEvalsha = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scriptCalls returns how many script calls a Redis has run.
func scriptCalls(t *testing.T, redis *testenv.RedisServer) int {
	t.Helper()
	info, err := redis.Do("INFO", "commandstats")
	if err != nil {
		t.Fatal(err)
	}
	match := callsOfEvalsha.FindStringSubmatch(info)
	if match == nil {
		return 0 // not called yet
	}
	n, err := strconv.Atoi(match[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}
