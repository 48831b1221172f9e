package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
)

// brief is a timeout for tests in which Redis is not well. An answer may come later than that when the machine is busy, but
// not by a minute.
const (
	brief = 200 * time.Millisecond
	late  = time.Minute
)

// perDay is a limit that does not refill while a test runs.
func perDay(requests int64) bucket.Limit {
	return bucket.Limit{Algorithm: bucket.TokenBucket, Requests: requests, Burst: requests, Window: 86_400_000_000}
}

func ask(key string, limit bucket.Limit) *bucket.Request {
	r := &bucket.Request{}
	r.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
	return r
}

// takeOne asks for one unit of the key and checks that the answer does not come late.
func takeOne(t *testing.T, s *redisstore.Store, key string, limit bucket.Limit) *bucket.Request {
	t.Helper()
	r := ask(key, limit)
	start := time.Now()
	s.Take(t.Context(), []*bucket.Request{r})
	if took := time.Since(start); took > late {
		t.Errorf("an answer after %v", took)
	}
	return r
}

// await polls until the condition holds.
func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(late); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for: %s", late, what)
		}
	}
}

// healthy waits until the store answers, and wants it to go on answering from then on.
func healthy(t *testing.T, s *redisstore.Store) {
	t.Helper()
	await(t, "an answer", func() bool { return takeOne(t, s, "healthy", perDay(1e6)).Err == nil })
	for i := range 100 {
		if err := takeOne(t, s, "healthy", perDay(1e6)).Err; err != nil {
			t.Fatalf("request %d after Redis is well again: %v", i, err)
		}
	}
}

func dial(t testing.TB, addr string) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestKilled(t *testing.T) {
	server := testenv.Redis(t)
	var mu sync.Mutex
	var changes []error
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: time.Second, Hooks: redisstore.Hooks{Up: func(cause error) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, cause)
	}}})
	healthy(t, s)
	server.Kill()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	server.Restart()
	healthy(t, s)
	mu.Lock()
	defer mu.Unlock()
	if len(changes) != 2 || changes[0] == nil || changes[1] != nil {
		t.Errorf("told of the changes %v, want an error and nil", changes)
	}
}

// TestNobodyThere: a single request finds out, so that one a minute is enough for the metric to tell.
func TestNobodyThere(t *testing.T) {
	s := open(t, redisstore.Config{URL: "unix://" + filepath.Join(t.TempDir(), "none.sock"), Timeout: time.Second})
	if err := takeOne(t, s, "k", perDay(10)).Err; err == nil {
		t.Error("an answer of nobody")
	}
	if err := takeOne(t, s, "k", perDay(10)).Err; !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("the next request: got %v, want %v", err, redisstore.ErrUnavailable)
	}
}

func TestPaused(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: brief})
	healthy(t, s)
	server.Pause()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := takeOne(t, s, "k", perDay(10)).Err; err == nil {
				t.Error("an answer of a Redis that is stopped")
			}
		})
	}
	all.Wait()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	server.Resume()
	healthy(t, s)
}

// TestGivenUp: the caller's request is the caller's again when Take returns, whatever becomes of the batch.
func TestGivenUp(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	healthy(t, s)
	server.Pause()
	var all sync.WaitGroup
	var unknown atomic.Int64
	for range 50 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), brief)
			defer cancel()
			r := ask("k", perDay(100))
			s.Take(ctx, []*bucket.Request{r})
			switch {
			case errors.Is(r.Err, ratelimit.ErrOutcomeUnknown):
				unknown.Add(1)
			case !errors.Is(r.Err, redisstore.ErrTooLate):
				t.Errorf("given up: %v, want ErrTooLate or ErrOutcomeUnknown", r.Err)
			}
			r.Takes[0] = bucket.Take{Key: "another"} // the race detector watches
		})
	}
	all.Wait()
	server.Resume()
	healthy(t, s)
	charged := 100 - 1 - takeOne(t, s, "k", perDay(100)).Takes[0].Decision.Remaining
	if charged > unknown.Load() {
		t.Errorf("of 50 requests that were given up %d were charged, but only %d of unknown outcome", charged, unknown.Load())
	}
}

func TestTooLate(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond) // less than what the answer needs to get home
	defer cancel()
	for name, ctx := range map[string]context.Context{"cancelled": cancelled, "2 ms left": soon} {
		r := ask("k", perDay(10))
		s.Take(ctx, []*bucket.Request{r})
		if !errors.Is(r.Err, redisstore.ErrTooLate) {
			t.Errorf("%s: %v, want ErrTooLate", name, r.Err)
		}
	}
	if left := takeOne(t, s, "k", perDay(10)).Takes[0].Decision.Remaining; left != 9 {
		t.Errorf("%d left after one request, want 9", left)
	}
}

func TestFlushed(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	admin := dial(t, server.Addr)
	for name, flush := range map[string]func(context.Context) error{
		"SCRIPT FLUSH": func(ctx context.Context) error { return admin.ScriptFlush(ctx).Err() },
		"FLUSHALL":     func(ctx context.Context) error { return admin.FlushAll(ctx).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			var flushing sync.WaitGroup
			flushing.Go(func() {
				for ctx.Err() == nil {
					_ = flush(ctx)
				}
			})
			for i := range 500 {
				if err := takeOne(t, s, "k", perDay(1e6)).Err; err != nil {
					t.Errorf("request %d: %v", i, err)
				}
			}
			stop()
			flushing.Wait()
		})
	}
}

// TestForeignValues: what is not ours fails the requests that need it, and nothing else; and it is left alone.
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
			"many units":    {[]any{"SET", "", "f1 1700000000000000 90000001"}, "UNREADABLE"},
			"many before":   {[]any{"SET", "", "c1 1700000000000000 1 90000001"}, "UNREADABLE"},
			"no whole debt": {[]any{"SET", "", "b1 1700000000000000 99999999999999999"}, "UNREADABLE"},
			"more than 1":   {[]any{"SET", "", "b1 1700000000000000 1 10 10"}, "UNREADABLE"},
			"no whole age":  {[]any{"SET", "", "s1 1700000000000000 1 99999999999999999 0 4 0:1 "}, "UNREADABLE"},
			"more":          {[]any{"SET", "", "c1 1700000000000000 1 1 1"}, "UNREADABLE"},
			"cut log":       {[]any{"SET", "", "s1 1700000000000000 2 0 5 8 0:1 5"}, "UNREADABLE"},
			"fraction":      {[]any{"SET", "", "b1 1700000000000000 1 1"}, "UNREADABLE"},
		} {
			t.Run(algorithm.String()+"/"+name, func(t *testing.T) {
				key := "bad " + t.Name()
				c.put[1] = key
				if err := admin.Do(t.Context(), c.put...).Err(); err != nil {
					t.Fatal(err)
				}
				before := admin.Dump(t.Context(), key).Val()
				neighbour, other, both := ask("neighbour "+key, limit), ask("neighbour "+key, limit), ask("other "+key, limit)
				both.Add(bucket.Take{Key: key, Limit: limit, Cost: 1})
				both.Add(bucket.Take{Key: "third " + key, Limit: limit, Cost: 1, CountDenied: true})
				s.Take(t.Context(), []*bucket.Request{neighbour, both, other})

				failed, ok := errors.AsType[*bucket.ScriptError](both.Err)
				if !ok || failed.Code != c.code || failed.Take != 1 {
					t.Errorf("error %v of take %+v, want %s of take 1", both.Err, failed, c.code)
				}
				if neighbour.Err != nil || other.Err != nil || other.Takes[0].Decision.Remaining != 8 {
					t.Errorf("the neighbours in the batch: %v, %v, %+v; want both charged", neighbour.Err, other.Err, other.Takes[0].Decision)
				}
				if n := admin.Exists(t.Context(), "other "+key, "third "+key).Val(); n != 0 {
					t.Errorf("%d other buckets of the request that failed were charged", n)
				}
				if after := admin.Dump(t.Context(), key).Val(); after != before {
					t.Error("the value was touched")
				}
			})
		}
	}
}

// TestOutOfMemory: who fits can not be charged and gets an error; who does not fit is told so all the same.
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
	s.Take(t.Context(), []*bucket.Request{r})
	if failed, ok := errors.AsType[*bucket.ScriptError](r.Err); !ok || failed.Code != "OOM" || failed.Partly {
		t.Errorf("a request that fits, without memory: %v, want OOM", r.Err)
	}
	if r := takeOne(t, s, "used up", perDay(1)); r.Err != nil || r.Allowed || r.RetryAfter <= 0 {
		t.Errorf("a request that does not fit, without memory: %+v, want it denied", r)
	}
	if err := admin.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	if n := admin.Exists(t.Context(), "a", "b").Val(); n != 0 {
		t.Errorf("%d buckets were charged of the request that failed", n)
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

// TestReplicaFlaps: a Redis that answers but takes no writes is down until it takes them, not up and down by turns.
func TestReplicaFlaps(t *testing.T) {
	server := testenv.Redis(t)
	var changes atomic.Int64
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, Hooks: redisstore.Hooks{Up: func(error) { changes.Add(1) }}})
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
			takeOne(t, s, "k", perDay(10)) // which would open the breaker again, were it closed
			return probes() != before
		})
	}
	if n := changes.Load(); n != 1 {
		t.Errorf("told of %d changes while it is a replica, want 1", n)
	}
	if err := admin.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	if n := changes.Load(); n != 2 {
		t.Errorf("told of %d changes in all, want 2", n)
	}
}

func TestBusy(t *testing.T) {
	server := testenv.Redis(t, "--busy-reply-threshold", "10")
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: time.Second})
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

// TestSwallowedReply: a reply that is lost on the way is an unknown outcome, and the charge is not repeated.
func TestSwallowedReply(t *testing.T) {
	server := testenv.Redis(t)
	p := newProxy(t, server.Addr)
	var unknown int
	s := open(t, redisstore.Config{URL: p.addr, Timeout: patient, Hooks: redisstore.Hooks{Unknown: func(n int) { unknown += n }}})
	healthy(t, s)
	p.swallow.Store(true)
	if err := takeOne(t, s, "k", perDay(10)).Err; !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("a reply was lost: %v, want ErrOutcomeUnknown", err)
	}
	healthy(t, s)
	if r := takeOne(t, s, "k", perDay(10)); r.Takes[0].Decision.Remaining != 8 || unknown != 1 {
		t.Errorf("a request with an unknown outcome and another one: %d of 10 left, want 8; told of %d unknown", r.Takes[0].Decision.Remaining, unknown)
	}
}

// TestOneRoundTrip: whatever is asked takes one command, and those who ask at the same time share it.
// TestManyTakes: whoever reaches the port can send a request with more takes than 16 bits count; it is decided, and at once.
func TestManyTakes(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	const n = 70_000
	r := &bucket.Request{}
	for i := range n {
		r.Add(bucket.Take{Key: fmt.Sprint(i), Limit: perDay(10), Cost: 1})
	}
	s.Take(t.Context(), []*bucket.Request{r})
	if r.Err != nil || !r.Allowed {
		t.Fatalf("%d takes: allowed %t, %v", n, r.Allowed, r.Err)
	}
	if held := dial(t, server.Addr).DBSize(t.Context()).Val(); held != n {
		t.Errorf("%d buckets were charged, want %d", held, n)
	}
	if i := r.Add(bucket.Take{Key: fmt.Sprint(n / 2), Limit: perDay(10), Cost: 1}); i != n/2 {
		t.Errorf("the same bucket again is take %d, want %d", i, n/2)
	}
}

func TestOneRoundTrip(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, PoolSize: 1})
	admin := dial(t, server.Addr)
	commands := func() string {
		var b strings.Builder
		for line := range strings.Lines(admin.Info(t.Context(), "commandstats").Val()) {
			name, stats, _ := strings.Cut(line, ":")
			if !strings.Contains(name, "config") && !strings.Contains(name, "info") && strings.HasPrefix(name, "cmdstat") {
				calls, _, _ := strings.Cut(stats, ",")
				fmt.Fprintf(&b, "%s %s; ", strings.TrimPrefix(name, "cmdstat_"), calls)
			}
		}
		return b.String()
	}
	healthy(t, s)
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	var batch []*bucket.Request
	for i := range 5 {
		r := &bucket.Request{At: 1_700_000_000_000_000}
		for j := range 4 {
			r.Add(bucket.Take{Key: fmt.Sprint(i, j), Limit: perDay(10), Need: 1})
		}
		batch = append(batch, r)
	}
	s.Take(t.Context(), batch)
	if got, want := commands(), "evalsha calls=1; get calls=20; "; !sameWords(got, want) {
		t.Errorf("5 requests of 4 takes in one batch made the commands %q, want %q", got, want)
	}

	// While Redis stands still one call is on the wire; the others gather.
	if err := admin.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	server.Pause()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if err := takeOne(t, s, fmt.Sprint("gather", i), perDay(10)).Err; err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "40 callers to wait", func() bool { return strings.Count(stacks(), "(*Store).submit") == 40 })
	server.Resume()
	all.Wait()
	if got := commands(); !strings.Contains(got, "evalsha calls=2;") {
		t.Errorf("40 requests at the same time made the commands %q, want 2 EVALSHA", got)
	}
}

func sameWords(a, b string) bool {
	count := map[string]int{}
	for word := range strings.SplitSeq(a, "; ") {
		count[word]++
	}
	for word := range strings.SplitSeq(b, "; ") {
		count[word]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

// TestOrder: requests of one batch are decided in their order, also when it takes several calls.
func TestOrder(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	var batch []*bucket.Request
	for range 300 {
		batch = append(batch, ask("k", perDay(150)))
	}
	s.Take(t.Context(), batch)
	for i, r := range batch {
		if r.Err != nil || r.Allowed != (i < 150) {
			t.Fatalf("request %d of 300 to a bucket of 150: allowed %t, %v", i, r.Allowed, r.Err)
		}
	}
}

func TestClose(t *testing.T) {
	server := testenv.Redis(t)
	mine := func() int {
		return strings.Count(stacks(), "redisstore.") - strings.Count(stacks(), "redisstore_test.")
	}
	before := mine()
	s, err := redisstore.New(redisstore.Config{URL: server.Addr, Timeout: brief})
	if err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	server.Kill() // so that a probe is under way
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await(t, "all goroutines to end", func() bool { return mine() <= before })
	if err := takeOne(t, s, "k", perDay(10)).Err; !errors.Is(err, redisstore.ErrClosed) && !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func TestPing(t *testing.T) {
	server := testenv.Redis(t, "--requirepass", "secret")
	if err := open(t, redisstore.Config{URL: server.Addr}).Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
	s := open(t, redisstore.Config{URL: "redis://:secret@" + server.Addr + "/3", Timeout: patient})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	healthy(t, s)
	if err := open(t, redisstore.Config{URL: "unix://" + server.Socket, Password: "secret"}).Ping(t.Context()); err != nil {
		t.Errorf("over a Unix socket: %v", err)
	}
	if err := open(t, redisstore.Config{URL: server.Socket, Password: "secret"}).Ping(t.Context()); err != nil {
		t.Errorf("over the path of a Unix socket: %v", err)
	}
	if _, err := redisstore.New(redisstore.Config{URL: "redis://user:hunter2@host:port:x/"}); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a malformed URL: %v, want an error without the password", err)
	}
}

// TestPingTells: a Redis that is away at the start is told of, without waiting for a request, and so is its coming.
func TestPingTells(t *testing.T) {
	server := testenv.Redis(t)
	server.Kill()
	up := make(chan error, 2)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, Hooks: redisstore.Hooks{Up: func(cause error) { up <- cause }}})
	if err := s.Ping(t.Context()); err == nil {
		t.Fatal("an answer of a Redis that was killed")
	}
	select {
	case cause := <-up:
		if cause == nil {
			t.Error("told that Redis is up")
		}
	default:
		t.Fatal("nobody was told")
	}
	server.Restart()
	if cause := <-up; cause != nil {
		t.Errorf("told of %v, want that Redis is up", cause)
	}
	healthy(t, s)
}
