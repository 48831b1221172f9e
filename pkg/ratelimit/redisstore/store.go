package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Config has the address of Redis and the timeouts.
type Config struct {
	// URL is redis://, rediss:// (TLS), unix://, host:port, or the path of a Unix socket. It may hold user, password and
	// database; the fields below override them. Default: localhost:6379.
	URL string
	// Username and Password authenticate each connection. Default: no authentication.
	Username, Password string
	// TLS turns on TLS and sets how to verify the server. Default: no TLS, or that of rediss://.
	TLS *tls.Config
	// PoolSize is the most connections, and so the most script calls on the wire at once. With more connections, fewer
	// requests gather for each call. Default 3.
	PoolSize int
	// Timeout bounds each operation, counted from when Take is called. Default 8 ms, because Envoy waits 20 ms by default.
	Timeout time.Duration
	// DialTimeout bounds the attempt to connect. Default 100 ms, or Timeout if that is longer.
	DialTimeout time.Duration
	// Up is called when Redis stops answering, with the error, and when it answers again, with nil. A goroutine that
	// serves requests calls it, so it must return at once. Optional.
	Up func(cause error)
}

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

// margin is the part of a caller's deadline that remains for returning the answer.
const margin = 3 * time.Millisecond

// Store keeps buckets in one Redis. It is safe for concurrent use.
type Store struct {
	cfg     Config
	options *redis.UniversalOptions
	lane    lane
	breaker breaker
	workers sync.WaitGroup
	stop    context.CancelFunc

	mu     sync.RWMutex // read-locked while the client is in use
	client redis.UniversalClient
}

// New returns a store that connects on first use; Ping checks that it can. The caller must close it.
func New(cfg Config) (*Store, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 8*time.Millisecond)
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, max(100*time.Millisecond, cfg.Timeout))
	cfg.PoolSize = cmp.Or(cfg.PoolSize, 3)
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Store{cfg: cfg, options: options, client: redis.NewUniversalClient(options), stop: stop}
	s.lane.arrived.L = &s.lane.mu
	s.breaker.changed = func(cause error) {
		if cfg.Up != nil {
			cfg.Up(cause)
		}
		if cause != nil {
			s.workers.Go(func() { s.probe(ctx) })
		}
	}
	for range cfg.PoolSize {
		s.workers.Go(s.work)
	}
	return s, nil
}

// Close ends the store. Waiting calls get ErrClosed; calls on the wire are answered.
func (s *Store) Close() error {
	s.lane.close()
	s.stop()
	s.workers.Wait()
	return s.client.Close()
}

// Ping reports whether Redis answers and accepts the script. It is meant for the start: only ctx and DialTimeout bound
// it. If Redis is unreachable, Ping opens the breaker, as a failed request would.
func (s *Store) Ping(ctx context.Context) error {
	err := s.ping(ctx)
	if err == nil {
		return nil
	}
	switch code(err) {
	case "NOAUTH", "WRONGPASS", "NOPERM": // Redis is reachable; an operator must fix the login
	default:
		s.breaker.trip(err)
	}
	return err
}

func (s *Store) ping(ctx context.Context) error {
	s.mu.RLock()
	c := s.client // renew may close it meanwhile
	s.mu.RUnlock()
	// Ping first: before the login, Redis refuses a text as long as the script.
	if err := c.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("redis: ping: %w", err)
	}
	if err := c.ScriptLoad(ctx, script).Err(); err != nil {
		return fmt.Errorf("redis: load the script: %w", err)
	}
	return nil
}

// Take implements ratelimit.Store. Its errors are those of this package, ratelimit.ErrOutcomeUnknown, a
// *bucket.ScriptError, or a reply of Redis.
func (s *Store) Take(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome) {
	c := newCall(requests)
	if err := s.submit(ctx, c); err != nil {
		fail(outcomes, err)
		return
	}
	for i := range c.chunks {
		ch := &c.chunks[i]
		n := ch.requests
		if ch.err != nil {
			fail(outcomes[:n], ch.err)
		} else {
			ch.answer(requests[:n], outcomes[:n], &c.bucket)
		}
		requests, outcomes = requests[n:], outcomes[n:]
	}
}

// fail sets the error of requests that Redis did not decide.
func fail(outcomes []bucket.Outcome, err error) {
	for i := range outcomes {
		outcomes[i] = bucket.Outcome{Err: err}
	}
}

// submit gives the call to the next free worker and waits. Without an error, the chunks have the answer.
func (s *Store) submit(ctx context.Context, c *call) error {
	wait := s.cfg.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline)-margin)
	}
	switch {
	case wait <= 0 || ctx.Err() != nil:
		return ErrTooLate
	case s.breaker.open():
		return ErrUnavailable
	}
	if err := s.lane.enter(c); err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	if c.drop() {
		return ErrTooLate
	}
	select {
	case <-c.done: // the answer came at the same moment
		return nil
	default:
		return fmt.Errorf("redis: no answer in time: %w", ratelimit.ErrOutcomeUnknown)
	}
}
