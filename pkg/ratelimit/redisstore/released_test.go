package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/nearstore"
	"github.com/extauthz/extauthz/pkg/ratelimit/redisstore"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestMemoryIsReleased has callers that overwrite the keys, requests and outcomes of a batch as soon as done is called.
// Redis hangs, closes connections and forgets the script meanwhile, callers give up, and the store is closed while they
// wait. done is called once for each batch. Each bucket holds what the outcomes of its caller report, and no bucket has
// a name that was overwritten. With the race detector, a store that still uses the memory fails.
func TestMemoryIsReleased(t *testing.T) {
	t.Parallel()
	const brief = 30 * time.Millisecond
	t.Run("one Redis", func(t *testing.T) {
		t.Parallel()
		server := testenv.Redis(t)
		newReleases(t, redisstore.Config{URL: server.Addr, Timeout: brief}, server).run()
	})
	t.Run("per second", func(t *testing.T) {
		t.Parallel()
		main, second := testenv.Redis(t), testenv.Redis(t)
		newReleases(t, redisstore.Config{
			URL: main.Addr, Timeout: brief, PerSecond: &redisstore.Config{URL: second.Addr, Timeout: brief},
		}, main, second).run()
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		cluster := testenv.Cluster(t)
		newReleases(t, redisstore.Config{
			Mode: redisstore.Cluster, URL: cluster.Addrs(), Timeout: brief,
		}, cluster.Masters...).run()
	})
	t.Run("with last known state", func(t *testing.T) {
		t.Parallel()
		server := testenv.Redis(t)
		newReleases(t, redisstore.Config{URL: server.Addr, Timeout: brief}, server).runNear()
	})
}

// releases are callers of one store.
type releases struct {
	*testing.T
	cfg     redisstore.Config
	servers []*testenv.RedisServer
	shared  *redisstore.Store
	store   ratelimit.Store
	local   ratelimit.Store // decides what store cannot; nil for none
	over    atomic.Bool
	charges atomic.Int64 // requests that the store has charged
}

func newReleases(t *testing.T, cfg redisstore.Config, servers ...*testenv.RedisServer) *releases {
	cfg.Panicked = func(value any) { t.Errorf("a panic: %v", value) }
	s, err := redisstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return &releases{T: t, cfg: cfg, servers: servers, shared: s, store: s}
}

// caller has the memory of a batch, which it uses for one batch after the other.
type caller struct {
	*releases
	name     string
	keys     []byte
	requests []bucket.Request
	outcomes []bucket.Outcome
	waits    atomic.Bool
	more     int // batches to begin in done
	ctx      context.Context
	done     func()
	ended    chan struct{}
	// charged are the units that the store has reported, and unknown those that it may have charged.
	charged, unknown int64
}

// The limits of the two buckets of a caller, which hardly refill. The first one is that of Config.PerSecond.
var releasedLimits = [...]bucket.Limit{
	{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 1e5, Window: 59_000_000},
	{Algorithm: bucket.TokenBucket, Requests: 1, Burst: 1e5, Window: 86_400_000_000},
}

func (r *releases) caller(i int) *caller {
	c := &caller{releases: r, name: fmt.Sprint("caller-", i), keys: make([]byte, 0, 1<<10), ended: make(chan struct{}, 1)}
	c.done = func() {
		if !c.waits.Swap(false) {
			c.Error("done was called twice")
		}
		c.decided()
	}
	return c
}

func (c *caller) key(limit int) string { return fmt.Sprint(c.name, "-", limit) }

// begin starts a batch.
func (c *caller) begin() {
	n := 1 + rand.IntN(3)
	if c.requests == nil {
		c.requests, c.outcomes = make([]bucket.Request, 3), make([]bucket.Outcome, 3)
	}
	for i := range n {
		r := &c.requests[i]
		r.Takes, r.Uncertain = r.Takes[:0], false
		for l := range releasedLimits {
			begin := len(c.keys)
			c.keys = append(c.keys, c.key(l)...)
			r.Add(bucket.Take{
				Key: texts.View(c.keys[begin:]), Rule: uint64(l), Limit: releasedLimits[l], Cost: 1, Lease: 4,
			})
		}
	}
	c.waits.Store(true)
	c.store.Start(c.ctx, c.requests[:n], c.outcomes[:n], c.done)
}

// decided notes the outcomes of a batch. It begins another one at once, or ends the caller's wait.
func (c *caller) decided() {
	for i := range c.requests {
		r, o := &c.requests[i], &c.outcomes[i]
		if len(r.Takes) == 0 {
			continue
		}
		switch {
		case errors.Is(o.Err, ratelimit.ErrOutcomeUnknown):
			c.unknown++
		case o.Err == nil && o.Allowed && len(o.Decisions) == len(r.Takes):
			c.charged++
			c.charges.Add(1)
		case o.Err == nil:
			c.Errorf("%s: %+v", c.name, o)
		}
		if o.Err != nil && c.local != nil {
			r.Uncertain = errors.Is(o.Err, ratelimit.ErrOutcomeUnknown)
			ratelimit.Take(c.ctx, c.local, c.requests[i:i+1], c.outcomes[i:i+1])
		}
		for k := range r.Takes {
			r.Takes[k] = bucket.Take{Key: "overwritten"}
		}
		clear(o.Decisions)
		clear(o.Seen)
		r.Takes = r.Takes[:0]
	}
	keys := c.keys
	for i := range keys {
		keys[i] = '!'
	}
	c.keys = c.keys[:0]
	if c.more--; c.more > 0 {
		c.begin() // as a limiter that takes two steps
		return
	}
	c.ended <- struct{}{}
}

// ask begins batches until the end, and sometimes gives up.
func (c *caller) ask() {
	for !c.over.Load() {
		timeout := time.Minute
		if rand.IntN(3) == 0 {
			timeout = rand.N(30 * time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		if rand.IntN(3) == 0 {
			time.AfterFunc(rand.N(5*time.Millisecond), cancel)
		}
		c.ctx, c.more = ctx, 1+rand.IntN(3)
		c.begin()
		select {
		case <-c.ended:
			<-time.After(rand.N(time.Millisecond)) // if Redis is unavailable, the answer is there at once
		case <-time.After(time.Minute):
			c.Error("done was not called")
			c.over.Store(true)
		}
		cancel()
	}
}

// load runs callers while the servers have faults.
func (r *releases) load(close func()) []*caller {
	callers := make([]*caller, 64)
	var all sync.WaitGroup
	for i := range callers {
		callers[i] = r.caller(i)
		all.Go(callers[i].ask)
	}
	for range 12 {
		server := r.servers[rand.IntN(len(r.servers))]
		before := r.charges.Load()
		testenv.Eventually(r, func() error {
			if r.charges.Load() == before {
				return errors.New("no request was charged")
			}
			return nil
		}, "Redis to decide")
		switch rand.IntN(4) {
		case 0:
			_, _ = server.Do("CLIENT", "KILL", "TYPE", "normal")
		case 1:
			_, _ = server.Do("SCRIPT", "FLUSH")
		default:
			server.Pause()
			<-time.After(rand.N(50 * time.Millisecond))
			server.Resume()
		}
	}
	close()
	r.over.Store(true)
	all.Wait()
	return callers
}

// run closes the store while callers wait, and checks what the buckets hold.
func (r *releases) run() {
	callers := r.load(func() {
		if err := r.shared.Close(); err != nil {
			r.Error(err)
		}
	})
	r.checkNames()
	cfg := r.cfg
	cfg.Timeout = patient
	if cfg.PerSecond != nil {
		second := *cfg.PerSecond
		second.Timeout = patient
		cfg.PerSecond = &second
	}
	s := open(r.T, cfg)
	testenv.Eventually(r.T, func() error { return s.Ping(r.Context()) }, "Redis answers") // also on a busy machine
	for _, c := range callers {
		for l := range releasedLimits {
			o := take(r.Context(), s, bucket.Request{Takes: []bucket.Take{{Key: c.key(l), Limit: releasedLimits[l]}}})[0]
			if o.Err != nil {
				r.Fatal(o.Err)
			}
			const slack = 1 // for what refills meanwhile
			held := releasedLimits[l].Burst - o.Decisions[0].Remaining
			if held < c.charged-slack || held > c.charged+c.unknown+slack {
				r.Errorf("%s holds %d units, want %d to %d", c.key(l), held, c.charged, c.charged+c.unknown)
			}
		}
	}
}

// runNear lets the last known states decide what Redis does not, in done.
func (r *releases) runNear() {
	near, err := nearstore.New(nearstore.Config{Shared: r.shared, DenialCache: true})
	if err != nil {
		r.Fatal(err)
	}
	defer near.Close()
	r.store, r.local = near, near.Local()
	r.load(func() {})
	testenv.Eventually(r, func() error {
		if owing := near.Stats().Owing; owing > 0 {
			return fmt.Errorf("%d buckets owe units", owing)
		}
		return nil
	}, "Redis to have what was admitted without it")
	if near.Stats().Admitted == 0 {
		r.Errorf("%+v: want units that were admitted without Redis", near.Stats())
	}
	r.checkNames()
}

var releasedNames = regexp.MustCompile(`^(rl:r\{\w{3}\})?caller-\d+-[01]$`)

func (r *releases) checkNames() {
	for _, server := range r.servers {
		reply, err := server.Do("KEYS", "*")
		if err != nil {
			r.Fatal(err)
		}
		for _, name := range strings.Fields(reply) {
			if !releasedNames.MatchString(name) {
				r.Errorf("a bucket %q", name)
			}
		}
	}
}
