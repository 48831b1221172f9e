package redisstore_test

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

func TestKilled(t *testing.T) {
	server := testenv.Redis(t)
	var mu sync.Mutex
	var changes []error
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, Up: func(_ string, cause error) {
		mu.Lock()
		defer mu.Unlock()
		changes = append(changes, cause)
	}})
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
		t.Errorf("got the changes %v, want an error and nil", changes)
	}
}

// TestCannotConnect checks that a single failed connection opens the breaker, so that one request a minute is enough
// for the metric.
func TestCannotConnect(t *testing.T) {
	s := open(t, redisstore.Config{URL: "unix://" + filepath.Join(t.TempDir(), "none.sock"), Timeout: patient})
	if err := takeOne(t, s, "k", perDay(10)).Err; err == nil {
		t.Error("an answer without a Redis")
	}
	if err := takeOne(t, s, "k", perDay(10)).Err; !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("the next request: got %v, want %v", err, redisstore.ErrUnavailable)
	}
}

func TestPaused(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: brief})
	answers(t, s)
	server.Pause()
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			if err := takeOne(t, s, "k", perDay(10)).Err; err == nil {
				t.Error("an answer of a paused Redis")
			}
		})
	}
	all.Wait()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	server.Resume()
	answers(t, s)
}

// TestPausedSlowly checks that the breaker also opens if a caller waits long for each of its requests.
func TestPausedSlowly(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: 300 * time.Millisecond})
	answers(t, s)
	server.Pause()
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
}

// TestDefaultTimeout has a Redis that stands still, and a caller who would wait long. By default, its request ends long
// before. With WholeDeadline it waits until Redis goes on.
func TestDefaultTimeout(t *testing.T) {
	server := testenv.Redis(t)
	stores := map[bool]*redisstore.Store{}
	for _, whole := range []bool{false, true} {
		s, err := redisstore.New(redisstore.Config{URL: server.Addr, WholeDeadline: whole})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		answers(t, s)
		stores[whole] = s
	}
	ctx, cancel := context.WithTimeout(t.Context(), patient)
	defer cancel()
	server.Pause()
	whole := make(chan error, 1)
	go func() { whole <- take(ctx, stores[true], ask("whole", perDay(10)))[0].Err }()
	await(t, "the request to be on the wire", func() bool { return stores[true].OnWire() > 0 })
	for range 3 {
		if err := take(ctx, stores[false], ask("k", perDay(10)))[0].Err; err == nil || ctx.Err() != nil {
			t.Errorf("got %v, want an error before the deadline of the caller", err)
		}
	}
	select {
	case err := <-whole:
		t.Errorf("with WholeDeadline: ended with %v while Redis stood still", err)
	default:
	}
	server.Resume()
	if err := <-whole; err != nil {
		t.Errorf("with WholeDeadline: %v", err)
	}
}

// TestGivenUp checks that the requests belong to the caller again when Take returns, whatever happens to the batch.
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
			o := take(ctx, s, r)[0]
			switch {
			case errors.Is(o.Err, ratelimit.ErrOutcomeUnknown):
				unknown.Add(1)
			case !errors.Is(o.Err, redisstore.ErrTooLate):
				t.Errorf("given up: %v, want ErrTooLate or ErrOutcomeUnknown", o.Err)
			}
			r.Takes[0] = bucket.Take{Key: "another"} // the race detector watches
		})
	}
	all.Wait()
	server.Resume()
	healthy(t, s)
	charged := 100 - 1 - takeOne(t, s, "k", perDay(100)).Decisions[0].Remaining
	if charged > unknown.Load() {
		t.Errorf("of 50 requests that were given up %d were charged, but only %d have an unknown outcome",
			charged, unknown.Load())
	}
}

// TestReserveOfCallerWhoLeaves: a caller that leaves after its reserve was sent still learns whether there is a hold,
// so that it can undo it.
func TestReserveOfCallerWhoLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	const key = "quizzebra"
	late := make(chan struct{}) // long after the caller has left
	addr := testenv.Proxy(t, testenv.Redis(t).Addr, func() (toServer, fromServer testenv.Pass) {
		return func(chunk []byte) bool {
				if bytes.Contains(chunk, []byte(key)) {
					leave()
					time.AfterFunc(brief, func() { close(late) })
				}
				return true
			}, func([]byte) bool {
				if ctx.Err() != nil {
					<-late
				}
				return true
			}
	})
	s := open(t, redisstore.Config{URL: addr, Timeout: patient})
	healthy(t, s)
	hold := &bucket.Hold{TTL: 60_000_000, Most: 10, Reserves: []bucket.HoldCost{{ID: bucket.HoldID{1}, Cost: 1}}}
	o := take(ctx, s, bucket.Request{Takes: []bucket.Take{{Key: key, Limit: perDay(10), Hold: hold}}})[0]
	if o.Err != nil || o.Decisions[0].Held.Until == 0 {
		t.Errorf("Redis decides %+v, want a hold", o)
	}
}

func TestTooLate(t *testing.T) {
	server := testenv.Redis(t)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient})
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancel := context.WithTimeout(t.Context(), 2*time.Millisecond) // less than the margin
	defer cancel()
	for name, ctx := range map[string]context.Context{"cancelled": cancelled, "2 ms left": soon} {
		if err := take(ctx, s, ask("k", perDay(10)))[0].Err; !errors.Is(err, redisstore.ErrTooLate) {
			t.Errorf("%s: %v, want ErrTooLate", name, err)
		}
	}
	if left := takeOne(t, s, "k", perDay(10)).Decisions[0].Remaining; left != 9 {
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

// TestSwallowedReply checks that a lost reply is an unknown outcome, and that the charge is not repeated.
func TestSwallowedReply(t *testing.T) {
	server := testenv.Redis(t)
	p := newProxy(t, server.Addr)
	s := open(t, redisstore.Config{URL: p.addr, Timeout: patient})
	healthy(t, s)
	p.swallow.Store(true)
	if err := takeOne(t, s, "k", perDay(10)).Err; !errors.Is(err, ratelimit.ErrOutcomeUnknown) {
		t.Errorf("a reply was lost: %v, want ErrOutcomeUnknown", err)
	}
	healthy(t, s)
	if r := takeOne(t, s, "k", perDay(10)); r.Decisions[0].Remaining != 8 {
		t.Errorf("a request with an unknown outcome and another one: %d of 10 left, want 8", r.Decisions[0].Remaining)
	}
}

func TestClose(t *testing.T) {
	server := testenv.Redis(t)
	mine := func() int {
		return strings.Count(stacks(), "redisstore.") - strings.Count(stacks(), "redisstore_test.")
	}
	before := mine()
	s, err := redisstore.New(redisstore.Config{URL: server.Addr, Timeout: patient})
	if err != nil {
		t.Fatal(err)
	}
	healthy(t, s)
	server.Kill() // starts a probe
	await(t, "the breaker to open", func() bool {
		return errors.Is(takeOne(t, s, "k", perDay(10)).Err, redisstore.ErrUnavailable)
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await(t, "all goroutines to end", func() bool { return mine() <= before })
	err = takeOne(t, s, "k", perDay(10)).Err
	if !errors.Is(err, redisstore.ErrClosed) && !errors.Is(err, redisstore.ErrUnavailable) {
		t.Errorf("after Close: %v, want ErrClosed", err)
	}
}

func TestPing(t *testing.T) {
	server := testenv.Redis(t, "--requirepass", "secret")
	err := open(t, redisstore.Config{URL: server.Addr}).Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("without a password: %v, want NOAUTH", err)
	}
	s := open(t, redisstore.Config{URL: "redis://:secret@" + server.Addr + "/3", Timeout: patient})
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	healthy(t, s)
	err = open(t, redisstore.Config{URL: "unix://" + server.Socket, Password: "secret"}).Ping(t.Context())
	if err != nil {
		t.Errorf("over a Unix socket: %v", err)
	}
	if err := open(t, redisstore.Config{URL: server.Socket, Password: "secret"}).Ping(t.Context()); err != nil {
		t.Errorf("over the path of a Unix socket: %v", err)
	}
	_, err = redisstore.New(redisstore.Config{URL: "redis://user:hunter2@host:port:x/"})
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a malformed URL: %v, want an error without the password", err)
	}
}

// TestPingReportsAnOutage checks that Up learns at the start, without a request, that Redis is unreachable, and later
// that it is back.
func TestPingReportsAnOutage(t *testing.T) {
	server := testenv.Redis(t)
	server.Kill()
	up := make(chan error, 2)
	s := open(t, redisstore.Config{URL: server.Addr, Timeout: patient, Up: func(_ string, cause error) { up <- cause }})
	if err := s.Ping(t.Context()); err == nil {
		t.Fatal("an answer of a killed Redis")
	}
	select {
	case cause := <-up:
		if cause == nil {
			t.Error("Up got nil, want an error")
		}
	default:
		t.Fatal("Up was not called")
	}
	server.Restart()
	if cause := <-up; cause != nil {
		t.Errorf("Up got %v, want nil", cause)
	}
	healthy(t, s)
}
