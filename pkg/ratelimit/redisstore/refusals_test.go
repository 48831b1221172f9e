package redisstore_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestForeignValues checks that a foreign value fails only the requests that need it, and is not changed.
func TestForeignValues(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	for _, algorithm := range bucket.Algorithms {
		limit := perDay(10)
		limit.Algorithm = algorithm
		for name, c := range map[string]struct {
			put  []any
			code string
		}{
			"list":          {[]any{"LPUSH", "", "a"}, "WRONGTYPE"},
			"hash":          {[]any{"HSET", "", "a", "b"}, "WRONGTYPE"},
			"garbage":       {[]any{"SET", "", "garbage"}, "UNREADABLE"},
			"number":        {[]any{"SET", "", "17"}, "UNREADABLE"},
			"empty":         {[]any{"SET", "", ""}, "UNREADABLE"},
			"binary":        {[]any{"SET", "", "\x00\xff\r\n\t1"}, "UNREADABLE"},
			"negative":      {[]any{"SET", "", "f1 -1 3"}, "UNREADABLE"},
			"no whole time": {[]any{"SET", "", "f1 99999999999999999 1"}, "UNREADABLE"},
			"many units":    {[]any{"SET", "", "f1 1700000000000000 1999999999999999"}, "UNREADABLE"},
			"many before":   {[]any{"SET", "", "c1 1700000000000000 1 8589934591"}, "UNREADABLE"},
			"no whole debt": {[]any{"SET", "", "b1 1700000000000000 99999999999999999"}, "UNREADABLE"},
			"more than 1":   {[]any{"SET", "", "b1 1700000000000000 1 10 10"}, "UNREADABLE"},
			"no whole age":  {[]any{"SET", "", "s1 1700000000000000 1 99999999999999999 0 4 0:1 "}, "UNREADABLE"},
			"more":          {[]any{"SET", "", "c1 1700000000000000 1 1 1"}, "UNREADABLE"},
			"cut log":       {[]any{"SET", "", "s1 1700000000000000 2 0 5 8 0:1 5"}, "UNREADABLE"},
			"long garbage":  {[]any{"SET", "", "s1 1700000000000000 1 0 0 " + strings.Repeat("x", 300)}, "UNREADABLE"},
			"long cut log":  {[]any{"SET", "", "s1 1700000000000000 1 0 0 400 " + strings.Repeat("0:1 ", 90)}, "UNREADABLE"},
			"fraction":      {[]any{"SET", "", "b1 1700000000000000 1 1"}, "UNREADABLE"},
		} {
			t.Run(algorithm.String()+"/"+name, func(t *testing.T) {
				key := "bad " + t.Name()
				c.put[1] = key
				if err := admin.Do(t.Context(), c.put...).Err(); err != nil {
					t.Fatal(err)
				}
				before := admin.Dump(t.Context(), key).Val()
				neighbour, other := ask("neighbour "+key, limit), ask("neighbour "+key, limit)
				both := ask("other "+key, limit)
				both.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
				both.Add(bucket.Take{Key: "third " + key, Limit: limit, Cost: 1, CountDenied: true})
				outcomes := take(t.Context(), s, neighbour, both, other)

				failed, ok := errors.AsType[*bucket.ScriptError](outcomes[1].Err)
				if !ok || failed.Code != c.code || failed.Take != 1 {
					t.Errorf("error %v of take %+v, want %s of take 1", outcomes[1].Err, failed, c.code)
				}
				if outcomes[0].Err != nil || outcomes[2].Err != nil || outcomes[2].Decisions[0].Remaining != 8 {
					t.Errorf("the neighbours in the batch: %+v, %+v; want both charged", outcomes[0], outcomes[2])
				}
				if n := admin.Exists(t.Context(), "other "+key, "third "+key).Val(); n != 0 {
					t.Errorf("%d other buckets of the failed request were charged", n)
				}
				if after := admin.Dump(t.Context(), key).Val(); after != before {
					t.Error("the value was changed")
				}
			})
		}
	}
}

// TestForeignLogs checks that a log whose numbers contradict each other fails only its own requests. The log is so long
// that an answer would show only a part of it.
func TestForeignLogs(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	limit := perDay(3)
	limit.Algorithm = bucket.SlidingWindowLog
	for name, bad := range map[string]bucket.Take{
		"refund":         {Refund: 1},
		"counted denial": {Cost: 1, CountDenied: true},
	} {
		t.Run(name, func(t *testing.T) {
			bad.Key, bad.Limit = "bad "+name, limit
			soon := time.Now().Add(time.Second).UnixMicro() // the time of the log stands still until then
			text := fmt.Sprintf("s1 %d 90 0 0 360 ", soon) + strings.Repeat("1:1 ", 90)
			if err := admin.Set(t.Context(), bad.Key, text, 0).Err(); err != nil {
				t.Fatal(err)
			}
			neighbour, request := ask("neighbour "+name, limit), bucket.Request{}
			request.Add(bad)
			outcomes := take(t.Context(), s, neighbour, request, neighbour)
			if failed, ok := errors.AsType[*bucket.ScriptError](outcomes[1].Err); !ok || failed.Code != "UNREADABLE" {
				t.Errorf("error %v, want UNREADABLE", outcomes[1].Err)
			}
			if outcomes[0].Err != nil || outcomes[2].Err != nil || outcomes[2].Decisions[0].Remaining != 1 {
				t.Errorf("the neighbours in the batch: %+v, %+v; want both charged", outcomes[0], outcomes[2])
			}
			if after := admin.Get(t.Context(), bad.Key).Val(); after != text {
				t.Errorf("the value was changed to %q", after)
			}
		})
	}
}

// TestOutOfMemory checks that a request that fits cannot be charged and gets an error. A request that does not fit is
// still denied.
func TestOutOfMemory(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	takeOne(t, s, "used up", perDay(1))
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	r := ask("a", perDay(10))
	r.Add(bucket.Take{Key: "b", Limit: perDay(10), Cost: 1})
	err := take(t.Context(), s, r)[0].Err
	if failed, ok := errors.AsType[*bucket.ScriptError](err); !ok || failed.Code != "OOM" || failed.Partly {
		t.Errorf("a request that fits, without memory: %v, want OOM", err)
	}
	if r := takeOne(t, s, "used up", perDay(1)); r.Err != nil || r.Allowed || r.RetryAfter <= 0 {
		t.Errorf("a request that does not fit, without memory: %+v, want it denied", r)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := admin.Exists(t.Context(), "a", "b").Val(); n != 0 {
		t.Errorf("%d buckets of the failed request were charged", n)
	}
	healthy(t, s)
}

func TestReplica(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	healthy(t, s)
	if err := admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	err := takeOne(t, s, "k", perDay(10)).Err
	if err == nil || errors.Is(err, ratelimit.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("a replica: %v, want READONLY, and not an unknown outcome", err)
	}
	if err := admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
}

// TestReplicaFlaps checks that a Redis that answers but refuses writes is down until it accepts them. It must not go
// up and down.
func TestReplicaFlaps(t *testing.T) {
	server := testenv.Redis(t)
	var changes atomic.Int64
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, Up: func(string, error) { changes.Add(1) }})
	admin := dial(t, server.Addr)
	healthy(t, s)
	if err := admin.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	probes := func() string {
		for line := range strings.Lines(admin.Info(t.Context(), "commandstats").Val()) {
			if strings.HasPrefix(line, "cmdstat_ping:") {
				return line
			}
		}
		return ""
	}
	for range 3 {
		before := probes()
		await(t, "another probe", func() bool {
			takeOne(t, s, "k", perDay(10)) // a closed breaker would open again
			return probes() != before
		})
	}
	if n := changes.Load(); n != 1 {
		t.Errorf("got %d changes while it is a replica, want 1", n)
	}
	if err := admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	if n := changes.Load(); n != 2 {
		t.Errorf("got %d changes in all, want 2", n)
	}
}

func TestBusy(t *testing.T) {
	server := testenv.Redis(t, "--busy-reply-threshold", "10")
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	healthy(t, s)
	var stuck sync.WaitGroup
	stuck.Go(func() {
		c := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, ReadTimeout: -1, DisableIdentity: true})
		defer func() { _ = c.Close() }()
		_ = c.Eval(t.Context(), "while true do end", nil).Err()
	})
	await(t, "BUSY", func() bool {
		err := takeOne(t, s, "k", perDay(10)).Err
		return err != nil && strings.HasPrefix(err.Error(), "BUSY") && !errors.Is(err, ratelimit.ErrOutcomeUnknown)
	})
	await(t, "the script to end", func() bool { return admin.ScriptKill(t.Context()).Err() == nil })
	stuck.Wait()
	healthy(t, s)
}
