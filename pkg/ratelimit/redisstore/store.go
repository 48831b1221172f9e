package redisstore

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"time"

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

// Store keeps buckets in one Redis. It is safe for concurrent use.
type Store struct{ node *node }

// New returns a store that connects on first use; Ping checks that it can. The caller must close it.
func New(cfg Config) (*Store, error) {
	cfg.Timeout = cmp.Or(cfg.Timeout, 8*time.Millisecond)
	cfg.DialTimeout = cmp.Or(cfg.DialTimeout, max(100*time.Millisecond, cfg.Timeout))
	cfg.PoolSize = cmp.Or(cfg.PoolSize, 3)
	options, err := cfg.options()
	if err != nil {
		return nil, err
	}
	return &Store{node: newNode(cfg, options)}, nil
}

// Close ends the store. Waiting calls get ErrClosed; calls on the wire are answered.
func (s *Store) Close() error { return s.node.close() }

// Ping reports whether Redis answers and accepts the script. It is meant for the start: only ctx and DialTimeout bound
// it. If Redis is unreachable, Ping opens the breaker, as a failed request would.
func (s *Store) Ping(ctx context.Context) error { return s.node.ping(ctx) }

// Take implements ratelimit.Store. Its errors are those of this package, ratelimit.ErrOutcomeUnknown, a
// *bucket.ScriptError, or a reply of Redis.
func (s *Store) Take(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome) {
	c := newCall(requests)
	if err := s.node.submit(ctx, c); err != nil {
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
