package redisstore

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// maxFailures in a row open the breaker. A call sent later than failureTime after the last failure begins another row.
	maxFailures = 5
	failureTime = time.Second
	// probeInterval bounds the time until the store notices that Redis is back.
	probeInterval = 100 * time.Millisecond
)

// breaker spares callers the wait for an unreachable Redis. While it is open, node.probe tries to connect.
type breaker struct {
	isOpen  atomic.Bool
	changed func(cause error) // called on each change, with nil when the breaker closes

	mu       sync.Mutex
	failures int       // in a row
	last     time.Time // the time of the last failure
}

func (b *breaker) open() bool { return b.isOpen.Load() }

// report records the result of a call to Redis that was sent at a time and had time until end. Besides maxFailures in a
// row, one failure opens the breaker if the call took failureTime, or no connection was possible. So does a replica:
// probes then look for the master.
func (b *breaker) report(err error, sent, end time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.failures = 0
		return
	}
	now := time.Now()
	if starved(err, sent, end, now) {
		return
	}
	if sent.Sub(b.last) > failureTime {
		b.failures = 0
	}
	b.failures, b.last = b.failures+1, now
	if b.failures >= maxFailures || now.Sub(sent) >= failureTime || cannotConnect(err) || code(err) == "READONLY" {
		b.openNow(err)
	}
}

// starved reports whether the timer of a call fired late, so that the timeout says nothing about Redis.
func starved(err error, sent, end, now time.Time) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout() && late(sent, end, now)
}

// late reports whether the timer of a call fired much later than it should. Then this process has had no CPU.
func late(sent, end, now time.Time) bool { return now.Sub(end) > end.Sub(sent)/2 }

// trip opens the breaker without waiting for more failures.
func (b *breaker) trip(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openNow(err)
}

// openNow opens the breaker. The caller holds mu.
func (b *breaker) openNow(err error) {
	if !b.isOpen.Swap(true) {
		b.changed(err)
	}
}

func (b *breaker) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	b.isOpen.Store(false)
	b.changed(nil)
}

// probe tries to reach Redis until Redis answers, then closes the breaker.
func (n *node) probe(ctx context.Context) {
	every := time.NewTicker(probeInterval)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if n.renew(ctx) == nil {
			n.breaker.close()
			return
		}
	}
}

// probeKey is a key that no bucket has. Nothing is ever stored there.
const probeKey = "rl:probe"

// writable reports whether Redis would decide. A replica answers a ping, but refuses to delete even a missing key, and
// so does a cluster that has lost a part. Any other error of the DEL does not prove that Redis cannot decide.
func writable(ctx context.Context, c redis.UniversalClient) error {
	if err := c.Ping(ctx).Err(); err != nil {
		return err
	}
	if err := c.Del(ctx, probeKey).Err(); code(err) == "READONLY" || isClusterDown(err) {
		return err
	}
	return nil
}
