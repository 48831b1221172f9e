package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Config has the address of Redis and the timeouts.
type Config struct {
	// Mode is how URL leads to Redis. Default: Single.
	Mode Mode
	// URL is redis://, rediss:// (TLS), unix://, host:port, or the path of a Unix socket. It may hold user, password and
	// database; the fields below replace them. Default: localhost:6379. Sentinel and Cluster have another form.
	URL string
	// Username and Password authenticate each connection. Default: no authentication.
	Username, Password string
	// SentinelUsername and SentinelPassword authenticate each connection to a sentinel. Default: no authentication.
	SentinelUsername, SentinelPassword string
	// TLS turns on TLS, also for sentinels. It is called for each connection, and returns how to verify the server.
	// Default: no TLS, or that of rediss://.
	TLS func() *tls.Config
	// PoolSize is the most connections to a node, and so the most script calls on the wire at once. With more
	// connections, fewer requests gather for each call. Default 3.
	PoolSize int
	// Timeout bounds each operation from Start on. It also ends 5 ms before the deadline of its caller. Default 50 ms.
	Timeout time.Duration
	// WholeDeadline lets operations last until the deadline of their caller. The default of Timeout is then 10 s.
	WholeDeadline bool
	// DialTimeout bounds the attempt to connect. Default: Timeout, but at least 100 ms and at most 1 s.
	DialTimeout time.Duration
	// PerSecond is another Redis for the buckets of windows that are shorter than a minute. Its own Up, Took, Panicked,
	// KeyPrefix and PerSecond have no effect. Default: all buckets are in this Redis.
	PerSecond *Config
	// Up is called when a Redis stops answering, with the error, and when it answers again, with nil. node is its name,
	// which holds no password. A goroutine that serves requests calls Up, so it must return at once. Optional.
	Up func(node string, cause error)
	// KeyPrefix begins the keys of buckets, and the names of the notes and holds beside them. Default: no prefix.
	KeyPrefix string
	// CountEvery is the time between two counts of CountReplicas. A replica counts for three such times. Default 10 s.
	CountEvery time.Duration
	// Took is called after each script call, or pipeline of them, with its duration. It must return at once. Optional.
	Took func(time.Duration)
	// Connections counts the connections to this Redis, without those to PerSecond. Optional.
	Connections *Connections
	// Panicked is called with the value of a panic in a done (Store.Start) that a goroutine of the store has called. It
	// runs in the deferred function that recovered. Default: such a panic ends the process.
	Panicked func(value any)

	epochs *atomic.Uint64 // the number of the last epoch; see epoch
}

// withDefaults returns the config with the default of each field that is not set.
func (cfg Config) withDefaults() Config {
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, min(max(100*time.Millisecond, cfg.Timeout), time.Second))
	if cfg.WholeDeadline {
		cfg.Timeout = cmp.Or(cfg.Timeout, longest)
	}
	cfg.Timeout = cmp.Or(cfg.Timeout, patience)
	cfg.PoolSize = cmp.Or(cfg.PoolSize, 3)
	cfg.CountEvery = cmp.Or(cfg.CountEvery, 10*time.Second)
	if cfg.Up == nil {
		cfg.Up = func(string, error) {}
	}
	return cfg
}

// MostWait returns how long a decision waits for Redis at most: Timeout, or its default.
func (cfg Config) MostWait() time.Duration { return cfg.withDefaults().Timeout }

// The errors that a caller may need to distinguish. None of their requests was charged.
var (
	// ErrUnavailable means that Redis has not answered lately and was not asked. Probes go on in the background.
	ErrUnavailable = errors.New("redis is not available")
	// ErrTooLate means that the time was over before Redis was asked.
	ErrTooLate = errors.New("no time left to ask redis")
	// ErrBusy means that too many requests already wait for Redis.
	ErrBusy = errors.New("too many requests are waiting for redis")
	// ErrClosed means that the store is closed.
	ErrClosed = errors.New("the store is closed")
)

// perSecondBelow is the length of a window from which Config.PerSecond does not have its bucket, in µs.
const perSecondBelow = 60_000_000

// Store keeps buckets in Redis. It is safe for concurrent use.
type Store struct {
	cfg    Config     // that of the main keyspace, with the longer Timeout of all
	spaces []keyspace // the main one, and that of Config.PerSecond if it is set
	leave  func()     // ends CountReplicas
}

// New returns a store that connects on first use; Ping checks that it can. The caller must close it.
func New(cfg Config) (*Store, error) {
	cfg = cfg.withDefaults()
	cfg.epochs = new(atomic.Uint64)
	main, err := newKeyspace(cfg)
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, spaces: []keyspace{main}, leave: func() {}}
	if cfg.PerSecond == nil {
		return s, nil
	}
	second := cfg.PerSecond.withDefaults()
	second.Up, second.Took, second.Panicked = cfg.Up, cfg.Took, cfg.Panicked
	second.KeyPrefix, second.epochs = cfg.KeyPrefix, cfg.epochs
	perSecond, err := newKeyspace(second)
	if err != nil {
		return nil, &PerSecondError{errors.Join(err, main.close())}
	}
	s.spaces = append(s.spaces, perSecond)
	s.cfg.Timeout = max(s.cfg.Timeout, second.Timeout)
	return s, nil
}

// PerSecondError is an error of Config.PerSecond.
type PerSecondError struct{ error }

// Unwrap returns the error itself.
func (e *PerSecondError) Unwrap() error { return e.error }

// Close ends the store. Waiting calls get ErrClosed; calls on the wire are answered. Replicas count this one no longer.
func (s *Store) Close() error {
	s.leave()
	return together(s.spaces, keyspace.close)
}

// together calls do for all at once, so that one that hangs leaves the time to the others. It joins the errors.
func together[T any](all []T, do func(T) error) error {
	failed := make([]error, len(all))
	var running sync.WaitGroup
	for i, one := range all {
		running.Go(func() { failed[i] = do(one) })
	}
	running.Wait()
	return errors.Join(failed...)
}

// Ping reports whether every Redis answers and accepts the script. It is meant for the start, and for health checks:
// only ctx and DialTimeout bound it. If a Redis is unreachable, Ping opens its breaker, as a failed request would. An
// error of Config.PerSecond is a *PerSecondError; with Config.PerSecond, Ping joins the errors of both.
func (s *Store) Ping(ctx context.Context) error {
	return together(s.spaces, func(space keyspace) error {
		err := space.ping(ctx)
		if err != nil && space != s.spaces[0] {
			return &PerSecondError{err}
		}
		return err
	})
}

// Nodes returns the state of each Redis that has buckets.
func (s *Store) Nodes() (all []NodeState) {
	for _, space := range s.spaces {
		perSecond, masters := space != s.spaces[0], space.masters()
		for _, n := range masters {
			all = append(all, NodeState{Name: n.name, PerSecond: perSecond, Up: !n.breaker.open()})
		}
		if len(masters) == 0 { // no node of the cluster is known
			all = append(all, NodeState{Name: space.(*cluster).name(), PerSecond: perSecond})
		}
	}
	return all
}

// Start implements ratelimit.Store. Its errors are those of this package, ratelimit.ErrOutcomeUnknown, a
// *bucket.ScriptError, or a reply of Redis.
func (s *Store) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	now := time.Now()
	until := s.cfg.end(ctx, now)
	one, isOne := s.spaces[0].(*node)
	switch {
	case len(requests) == 0:
		done()
	case !until.After(now) || ctx.Err() != nil:
		fail(outcomes, ErrTooLate)
		done()
	case isOne && len(s.spaces) == 1:
		c := one.newCall(until, done)
		for i := range requests {
			c.add(&requests[i], &outcomes[i], scope{})
		}
		c.start(ctx)
	default:
		go s.run(ctx, until, requests, outcomes, done)
	}
}

// run decides requests whose buckets may be in several places.
func (s *Store) run(ctx context.Context, until time.Time, requests []bucket.Request, outcomes []bucket.Outcome,
	done func()) {
	defer ratelimit.Caught(s.cfg.Panicked)
	within, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	over := false
	defer func() {
		if !over { // a panic, with no call on its way
			fail(outcomes, errNoAnswer)
			done()
		}
	}()
	for len(requests) > 0 {
		n := s.independent(requests)
		e := errand{store: s, ctx: ctx, within: within, until: until}
		e.run(requests[:n], outcomes[:n])
		requests, outcomes = requests[n:], outcomes[n:]
	}
	over = true
	done()
}

// fail sets the error of requests that Redis did not decide.
func fail(outcomes []bucket.Outcome, err error) {
	for i := range outcomes {
		outcomes[i] = bucket.Outcome{Err: err}
	}
}

// home returns where the bucket of a take is.
func (s *Store) home(t *bucket.Take) home { return s.space(&t.Limit).home(t.Key) }

// space returns the keyspace that has the buckets of a limit.
func (s *Store) space(l *bucket.Limit) keyspace {
	if len(s.spaces) > 1 && l.Window < perSecondBelow && !l.Algorithm.Windowless() {
		return s.spaces[1]
	}
	return s.spaces[0]
}

// independent returns how many of the requests can be sent together: those before the first one with a bucket of an
// earlier request that needs several places. Such a request may charge that bucket and give it back.
func (s *Store) independent(requests []bucket.Request) int {
	if len(requests) == 1 {
		return 1
	}
	held := map[string]bool{}
	for i := range requests {
		takes := requests[i].Takes
		for k := range takes {
			if held[takes[k].Key] {
				return i
			}
		}
		for k := range takes {
			if s.home(&takes[k]) != s.home(&takes[0]) {
				for k := range takes {
					held[takes[k].Key] = true
				}
				break
			}
		}
	}
	return len(requests)
}
