package redisstore

import (
	"slices"
	"sync"
)

const (
	// maxKeys is the most keys of a script call. It keeps Redis, which does nothing else meanwhile, busy for some 0.2 ms.
	// A single request may have more.
	maxKeys = 64
	// maxWaiting bounds the waiting keys: 50 ms of work for a healthy Redis.
	maxWaiting = 16384
)

// lane is the queue to one Redis. Calls gather in it while earlier calls are on the wire. A call never waits for
// others to gather: a free worker takes all calls that are there.
type lane struct {
	mu      sync.Mutex
	arrived sync.Cond // of mu
	queue   []*call
	keys    int // the number of keys in the queue
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

// gather waits for calls and returns one call, or several calls that one script call can decide. It marks them as
// sent. ok is false if the lane was closed.
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

// close ends all gathering, and fails the waiting calls.
func (l *lane) close() {
	l.mu.Lock()
	left := l.queue
	l.closed, l.queue, l.keys = true, nil, 0
	l.arrived.Broadcast()
	l.mu.Unlock()
	for _, c := range left { // without the lock: what follows may enter another call
		c.fail(waiting, ErrClosed)
	}
}
