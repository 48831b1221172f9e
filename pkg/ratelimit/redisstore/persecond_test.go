package redisstore_test

import (
	"errors"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/storetest"
	"github.com/extauthz/extauthz/test/testenv"
)

func TestPerSecond(t *testing.T) {
	t.Parallel()
	main, second := testenv.Redis(t), testenv.Redis(t)
	storetest.RunSpread(t, func(t *testing.T) storetest.Store {
		return open(t, redisstore.Config{URL: main.Addr, PerSecond: &redisstore.Config{URL: second.Addr, Timeout: patient}})
	})
}

// TestPerSecondPlaces checks that windows of less than a minute are in the second Redis. A request with buckets in both
// is decided as one.
func TestPerSecondPlaces(t *testing.T) {
	t.Parallel()
	main, cluster := testenv.Redis(t), testenv.Cluster(t)
	s := open(t, redisstore.Config{URL: main.Addr, PerSecond: &redisstore.Config{
		Mode: redisstore.Cluster, URL: cluster.Addrs(), Timeout: patient,
	}})
	seconds := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 1, Window: 59_000_000}
	both := askAll(perDay(10), "day")
	both.Add(bucket.Take{Key: "seconds", Limit: seconds, Cost: 1})
	for i, allowed := range []bool{true, false} {
		o := take(t.Context(), s, both)[0]
		if o.Err != nil || o.Allowed != allowed || !o.Decisions[0].Allowed || o.Decisions[0].Remaining != 9 {
			t.Errorf("request %d: %+v, want allowed %t, and 9 of the day left", i, o, allowed)
		}
	}
	for _, c := range []struct {
		server *testenv.RedisServer
		keys   string
	}{{main, "day"}, {cluster.MasterOf("seconds"), "seconds"}} {
		// A charge that was given back has left a note beside its bucket.
		if keys, err := c.server.Do("KEYS", "[^r]*"); keys != c.keys || err != nil {
			t.Errorf("the keys %q (%v), want %q", keys, err, c.keys)
		}
	}
	// A limit of requests at once has no window: its holds are in the main Redis.
	atOnce := bucket.Limit{Algorithm: bucket.Concurrency, Requests: 1}
	take(t.Context(), s, hold("slots", atOnce, 0, bucket.Hold{TTL: 1e9, Most: 1, Release: true}, held(1, 1), nil))
	if there, err := main.Do("EXISTS", "slots"); there != "1" || err != nil {
		t.Errorf("EXISTS of the bucket in the main Redis: %s, %v", there, err)
	}
}

// TestPerSecondDown checks that requests that need only the other Redis are decided while one of the two is down.
func TestPerSecondDown(t *testing.T) {
	t.Parallel()
	main, second := testenv.Redis(t), testenv.Redis(t)
	s := open(t, redisstore.Config{URL: main.Addr, PerSecond: &redisstore.Config{URL: second.Addr, Timeout: patient}})
	if err := s.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	second.Kill()
	err := s.Ping(t.Context())
	if _, ok := errors.AsType[*redisstore.PerSecondError](err); !ok {
		t.Errorf("%v, want an error of the second Redis", err)
	}
	if o := takeOne(t, s, "day", perDay(10)); o.Err != nil {
		t.Errorf("a bucket in the Redis that answers: %v", o.Err)
	}
	seconds := bucket.Limit{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 1, Window: 1_000_000}
	both := askAll(perDay(10), "day")
	both.Add(bucket.Take{Key: "seconds", Limit: seconds, Cost: 1})
	if o := take(t.Context(), s, both)[0]; !errors.Is(o.Err, redisstore.ErrUnavailable) {
		t.Errorf("buckets in both: %+v, want ErrUnavailable", o)
	}
	if o := takeOne(t, s, "day", perDay(10)); o.Err != nil || o.Decisions[0].Remaining != 8 {
		t.Errorf("%+v, want 8 left", o)
	}
	want := []redisstore.NodeState{{Name: main.Addr, Up: true}, {Name: second.Addr, PerSecond: true}}
	if got := s.Nodes(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("nodes: %v, want %v", got, want)
	}
}

// TestPanicInErrand has a request in two places whose limit no rule can have, which is a panic. Its caller gets an
// outcome nevertheless, and so does the next one.
func TestPanicInErrand(t *testing.T) {
	t.Parallel()
	main, second := testenv.Redis(t), testenv.Redis(t)
	panics := make(chan any, 1)
	s := open(t, redisstore.Config{
		URL: main.Addr, PerSecond: &redisstore.Config{URL: second.Addr, Timeout: patient},
		Panicked: func(value any) { panics <- value },
	})
	for range 2 {
		both := ask("day", perDay(10))
		broken := bucket.Limit{Algorithm: 200, Requests: 1, Window: 1}
		floor := &bucket.Floor{State: bucket.State{Last: 1, Count: 1}}
		both.Takes = append(both.Takes, bucket.Take{Key: "broken", Limit: broken, Floor: floor})
		if o := take(t.Context(), s, both)[0]; !errors.Is(o.Err, ratelimit.ErrOutcomeUnknown) {
			t.Errorf("%+v, want ErrOutcomeUnknown", o)
		}
		<-panics
		if o := takeOne(t, s, "day", perDay(10)); o.Err != nil {
			t.Error(o.Err)
		}
	}
	if o := takeOne(t, s, "day", perDay(10)); o.Decisions[0].Remaining != 7 {
		t.Errorf("%+v, want 7 left: nothing was sent before the panics", o)
	}
}
