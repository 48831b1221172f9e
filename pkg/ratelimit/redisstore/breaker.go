package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxFailures in a row within failureTime open the breaker; a connection that can not be made does at once.
	maxFailures = 5
	failureTime = time.Second
	// probeInterval is how soon it is noticed that Redis is back.
	probeInterval = 100 * time.Millisecond
)

// breaker spares callers the wait for a Redis that does not answer. While it is open, someone else tries.
type breaker struct {
	isOpen atomic.Bool
	tell   func(cause error) // of each change; nil: it is closed again
	probe  func()            // starts to probe, which ends with close

	mu       sync.Mutex
	failures int
	first    time.Time // of the failures
}

func newBreaker(tell func(cause error), probe func()) *breaker {
	return &breaker{tell: tell, probe: probe}
}

func (b *breaker) open() bool { return b.isOpen.Load() }

// report counts how a call to Redis ended.
func (b *breaker) report(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failures = 0
		return
	}
	now := time.Now()
	if b.failures == 0 || now.Sub(b.first) > failureTime {
		b.failures, b.first = 0, now
	}
	b.failures++
	if b.failures >= maxFailures || nobodyThere(err) {
		b.openNow(err)
	}
}

// trip opens the breaker, without waiting for more failures.
func (b *breaker) trip(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openNow(err)
}

// openNow is called with mu held.
func (b *breaker) openNow(err error) {
	if b.isOpen.Load() {
		return
	}
	b.isOpen.Store(true)
	b.tell(err)
	b.probe()
}

func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	b.isOpen.Store(false)
	b.tell(nil)
}

// probe tries to reach Redis until it answers, and then closes the breaker.
func (s *Store) probe(ctx context.Context) {
	every := time.NewTicker(probeInterval)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if s.reach(ctx) == nil {
			s.breaker.close()
			return
		}
	}
}

func (s *Store) reach(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.DialTimeout+s.cfg.Timeout)
	defer cancel()
	return s.link.renew(ctx)
}
