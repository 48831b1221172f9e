package redisstore

import (
	"slices"
	"sync"
)

const (
	// maxKeys is the most keys of a script call: it keeps Redis, which does nothing else meanwhile, busy for some 0.2 ms. A
	// single request may have more.
	maxKeys = 64
	// maxWaiting bounds the keys that wait to be sent: 50 ms of work for a healthy Redis.
	maxWaiting = 16384
)

// lane is the way to one Redis: calls gather in it while earlier ones are on the wire. Nobody waits for company: a free
// worker takes what is there.
type lane struct {
	mu      sync.Mutex
	arrived sync.Cond // of mu
	queue   []*call
	keys    int // of the queue
	closed  bool
}

func (l *lane) enter(c *call) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return ErrClosed
	case l.keys >= maxWaiting:
		return ErrBusy
	}
	l.queue = append(l.queue, c)
	l.keys += c.keys
	l.arrived.Signal()
	return nil
}

// gather waits for calls and returns those that go together, marked as sent: one call, or several that one script call can decide.
// ok is false when the lane has been closed.
func (l *lane) gather(batch []*call) (_ []*call, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.queue) == 0 && !l.closed {
		l.arrived.Wait()
	}
	if l.closed {
		return nil, false
	}
	keys, n := 0, 0
	for _, c := range l.queue {
		if len(batch) > 0 && keys+c.keys > maxKeys {
			break
		}
		l.keys -= c.keys
		if n++; c.send() {
			batch = append(batch, c)
			keys += c.keys
		}
	}
	if l.queue = slices.Delete(l.queue, 0, n); len(l.queue) > 0 {
		l.arrived.Signal()
	}
	return batch, true
}

// close ends all gathering, and fails whoever waits.
func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.queue {
		if c.send() {
			c.fail(ErrClosed)
		}
	}
	l.queue, l.keys = nil, 0
	l.arrived.Broadcast()
}
