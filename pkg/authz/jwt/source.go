package jwt

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// origin is where keys come from: a file or a URL.
type origin interface {
	// name tells origins apart. It is fit for logs.
	name() string
	// read returns the document, and for how long it need not be read again.
	read(ctx context.Context) (text []byte, fresh time.Duration, err error)
	// floor is the least time between two readings that requests, or errors, ask for.
	floor() time.Duration
}

// firstRetry is how long after an error keys are read again that have never been read; then twice as long each time, up to the
// floor. A service that starts before its issuer is up need not wait for long.
const firstRetry = time.Second

// margin is what is left of a request's time when it stops waiting for keys, so that there is some to answer.
const margin = 3 * time.Millisecond

// source keeps the keys of one origin, and reads them again in the background. One goroutine reads, so that there is never more
// than one reading in flight; requests only ask it to.
type source struct {
	cfg    Config
	origin origin
	stop   context.CancelFunc // ends run; the keys serve on
	wake   chan struct{}      // a reading is wanted now
	good   atomic.Pointer[goodKeys]

	mu       sync.Mutex
	reading  chan struct{} // closed when the reading in flight has ended; nil without one
	began    time.Time     // the last reading
	stopped  bool
	failures uint64
}

// goodKeys are the keys that were read last without an error.
type goodKeys struct {
	set  *keySet
	read time.Time
}

// newSource returns a source whose first reading counts as in flight, so that requests wait for it. The caller runs it.
func newSource(cfg Config, o origin, stop context.CancelFunc) *source {
	return &source{
		cfg: cfg, origin: o, stop: stop, wake: make(chan struct{}, 1),
		reading: make(chan struct{}), began: cfg.Now(),
	}
}

// keys returns the keys; nil when there never were any, or they are too old.
func (s *source) keys(now time.Time) *keySet {
	good := s.good.Load()
	if good == nil || now.Sub(good.read) > s.cfg.MaxStale {
		return nil
	}
	return good.set
}

// find returns the keys and those of them with which a token can be checked.
func (s *source) find(h header, now time.Time) (*keySet, []key) {
	keys := s.keys(now)
	if keys == nil {
		return nil, nil
	}
	return keys, keys.find(h)
}

// refresh has the keys read again, unless that was less than the floor ago, and waits for the reading in flight until ctx is
// nearly done. After it, find again: also when there was none to wait for, one may have ended since the keys were looked at.
func (s *source) refresh(ctx context.Context) {
	done := s.request()
	if done == nil {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-margin))
		defer cancel()
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// request returns what is closed when the reading in flight has ended, after starting one if it may; nil if it may not.
func (s *source) request() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil {
		if s.stopped || s.cfg.Now().Sub(s.began) < s.origin.floor() {
			return nil
		}
		s.begin()
		s.wake <- struct{}{} // never blocks: run takes it before it ends this reading
	}
	return s.reading
}

// begin marks a reading as in flight. The caller holds the lock.
func (s *source) begin() { s.reading, s.began = make(chan struct{}), s.cfg.Now() }

// run reads the keys at once, and again whenever they are due or wanted, until ctx is done.
func (s *source) run(ctx context.Context) {
	defer s.end()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var errorsInRow int
	news := news{source: s.origin.name()}
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
			s.due()
		}
		fresh, err := s.read(ctx)
		if ctx.Err() != nil {
			return
		}
		next := fresh
		if errorsInRow++; err == nil {
			errorsInRow = 0
		} else {
			next = s.retry(errorsInRow)
		}
		timer.Reset(early(next))
		s.done(err)
		if r, ok := news.of(s.good.Load(), err); ok {
			s.cfg.OnReading(r)
		}
	}
}

// due marks a reading as in flight, unless it is already: a request has asked for it at the same moment, or it is the first.
func (s *source) due() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reading == nil {
		s.begin()
		return
	}
	select {
	case <-s.wake:
	default:
	}
}

// read reads the keys once. Its error leaves those before in place.
func (s *source) read(ctx context.Context) (fresh time.Duration, err error) {
	text, fresh, err := s.origin.read(ctx)
	if err != nil {
		return 0, err
	}
	set, err := parseKeys(text)
	if err != nil {
		return 0, err
	}
	if before := s.good.Load(); before != nil && before.set.version == set.version {
		set = before.set
	}
	s.good.Store(&goodKeys{set: set, read: s.cfg.Now()})
	return fresh, nil
}

// retry is when to read again after errors.
func (s *source) retry(errorsInRow int) time.Duration {
	if s.good.Load() != nil {
		return s.origin.floor()
	}
	return min(firstRetry<<min(errorsInRow-1, 10), s.origin.floor())
}

// early makes a time up to a tenth shorter, so that replicas do not all ask an issuer at the same moment.
func early(d time.Duration) time.Duration { return d - rand.N(d/10+1) }

// done ends the reading in flight, for those who wait for it.
func (s *source) done(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failures++
	}
	close(s.reading)
	s.reading = nil
}

// end lets nobody wait any more.
func (s *source) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	if s.reading != nil {
		close(s.reading)
		s.reading = nil
	}
}
