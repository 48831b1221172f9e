package redisstore_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestManyTakes sends a request with more takes than 16 bits count, as any client of the port can. It is decided at
// once.
func TestManyTakes(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	const n = 70_000
	var r bucket.Request
	for i := range n {
		r.Add(bucket.Take{Key: fmt.Sprint(i), Limit: perDay(10), Cost: 1})
	}
	if o := take(t.Context(), s, r)[0]; o.Err != nil || !o.Allowed {
		t.Fatalf("%d takes: allowed %t, %v", n, o.Allowed, o.Err)
	}
	if held := dial(t, server.Addr).DBSize(t.Context()).Val(); held != n {
		t.Errorf("%d buckets were charged, want %d", held, n)
	}
	if i := r.Add(bucket.Take{Key: fmt.Sprint(n / 2), Limit: perDay(10), Cost: 1}); i != n/2 {
		t.Errorf("the same bucket again is take %d, want %d", i, n/2)
	}
}

// TestOneRoundTrip checks that a batch needs one command, however many requests and takes it has.
func TestOneRoundTrip(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1})
	healthy(t, s)
	commands := commandStats(t, server)
	var batch []bucket.Request
	for i := range 5 {
		r := bucket.Request{At: 1_700_000_000_000_000}
		for j := range 4 {
			r.Add(bucket.Take{Key: fmt.Sprint(i, j), Limit: perDay(10), Need: 1})
		}
		batch = append(batch, r)
	}
	take(t.Context(), s, batch...)
	if diff := cmp.Diff(map[string]int{"evalsha": 1, "get": 20}, commands()); diff != "" {
		t.Errorf("commands for 5 requests of 4 takes in one batch (-want +got):\n%s", diff)
	}
}

// TestCallersShareACommand checks that requests that arrive while a command is on the wire share the next command.
func TestCallersShareACommand(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1})
	healthy(t, s)
	commands := commandStats(t, server)
	server.Pause()
	var all sync.WaitGroup
	call := func(key string) {
		all.Go(func() {
			if err := takeOne(t, s, key, perDay(10)).Err; err != nil {
				t.Error(err)
			}
		})
	}
	call("first")
	await(t, "the first call to be on the wire", func() bool { return s.OnWire() > 0 })
	for i := range 40 {
		call(fmt.Sprint("gather", i))
	}
	await(t, "40 calls to gather", func() bool { return s.Gathered() == 40 })
	server.Resume()
	all.Wait()
	if got := commands()["evalsha"]; got != 2 {
		t.Errorf("%d EVALSHA for 1 request and 40 that came while it was on the wire, want 2", got)
	}
}

// commandStats returns a function that returns how many commands of each kind a server has run since.
func commandStats(t *testing.T, server *testenv.RedisServer) func() map[string]int {
	t.Helper()
	admin := dial(t, server.Addr)
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return func() map[string]int {
		t.Helper()
		stats, err := admin.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		ran := map[string]int{}
		for line := range strings.Lines(stats) {
			var calls int
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			_, err := fmt.Sscanf(rest, "calls=%d,", &calls)
			if err == nil && name != "config|resetstat" && name != "info" {
				ran[name] = calls
			}
		}
		return ran
	}
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestOrder checks that requests of one batch are decided in their order, also over several script calls and if Redis
// does not know the script.
func TestOrder(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	for _, key := range []string{"script not loaded", "script loaded"} {
		var batch []bucket.Request
		for range 300 {
			batch = append(batch, ask(key, perDay(150)))
		}
		for i, o := range take(t.Context(), s, batch...) {
			if o.Err != nil || o.Allowed != (i < 150) {
				t.Fatalf("%s: request %d of 300 to a bucket of 150: allowed %t, %v", key, i, o.Allowed, o.Err)
			}
		}
	}
}

// TestLargeBatch checks that a batch too large for one script call waits for Redis once. One failed request does not
// affect the others.
func TestLargeBatch(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1})
	healthy(t, s)
	if err := dial(t, server.Addr).Set(t.Context(), "130", "garbage", 0).Err(); err != nil {
		t.Fatal(err)
	}
	var batch []bucket.Request
	for i := range 150 {
		batch = append(batch, ask(fmt.Sprint(i), perDay(10)))
	}
	commands := commandStats(t, server)
	for i, o := range take(t.Context(), s, batch...) {
		if (o.Err != nil) != (i == 130) || o.Err == nil && o.Decisions[0].Remaining != 9 {
			t.Errorf("request %d: %+v", i, o)
		}
	}
	if got := commands()["evalsha"]; got != 3 {
		t.Errorf("%d EVALSHA, want 3", got)
	}
}
