package redisstore

import (
	"slices"
	"sync"
	"time"
)

const (
	// maxKeys is the most keys of a script call, which keeps Redis busy for some 0.2 ms. A single request may have more.
	maxKeys = 64
	// maxWaiting bounds the waiting keys: 50 ms of work for a healthy Redis.
	maxWaiting = 16384
)

// lane is the queue to one Redis, and its workers. A call goes to an idle worker at once. If there is none, calls
// gather, and the next free worker takes all that are there. No call waits for others to gather.
type lane struct {
	mu      sync.Mutex
	arrived sync.Cond // of mu: for workers without a connection
	queue   []*call
	keys    int // the number of keys in the queue
	workers []*worker
	idle    []*worker // those with a connection and no calls; the last one was busy last
	closed  bool
}

// enter queues a call. If a worker is idle, it gets the call, and the caller must call its send.
func (l *lane) enter(c *call) (*worker, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return nil, ErrClosed
	case l.keys >= maxWaiting:
		return nil, ErrBusy
	}
	l.queue = append(l.queue, c)
	l.keys += c.keys
	for len(l.idle) > 0 {
		last := len(l.idle) - 1
		w := l.idle[last]
		if !w.link.quiet() {
			l.idle = slices.Delete(l.idle, last, last+1) // its goroutine is about to notice
			continue
		}
		if !l.gather(w) { // the call has just ended
			return nil, nil
		}
		l.idle = slices.Delete(l.idle, last, last+1)
		return w, nil
	}
	l.arrived.Signal()
	return nil, nil
}

// gather gives a worker one call, or several calls that one script call can decide. It marks them as sent. It returns
// false if there are none. The caller holds mu.
func (l *lane) gather(w *worker) bool {
	keys, n := 0, 0
	for _, c := range l.queue {
		if len(w.batch) > 0 && keys+c.keys > maxKeys {
			break
		}
		l.keys -= c.keys
		if n++; c.send() {
			w.batch = append(w.batch, c)
			keys += c.keys
		}
	}
	if l.queue = slices.Delete(l.queue, 0, n); len(l.queue) > 0 {
		l.arrived.Signal()
	}
	if len(w.batch) == 0 {
		return false
	}
	w.answered = false
	w.sending.Lock() // free: nothing is on its wire
	return true
}

// await waits for calls. It returns until when the most patient one waits. ok is false if the lane was closed.
func (l *lane) await() (until time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.forget(); len(l.queue) == 0 && !l.closed; l.forget() {
		l.arrived.Wait()
	}
	return latest(l.queue), !l.closed
}

// latest returns until when the most patient of some calls waits. It is the zero time without calls.
func latest(calls []*call) (until time.Time) {
	for _, c := range calls {
		if c.until.After(until) {
			until = c.until
		}
	}
	return until
}

// forget removes the calls that have ended, so that no worker connects for them again and again. The caller holds mu.
func (l *lane) forget() {
	l.queue = slices.DeleteFunc(l.queue, func(c *call) bool {
		if !c.past() {
			return false
		}
		l.keys -= c.keys
		return true
	})
}

// take gives calls to a worker that has no connection.
func (l *lane) take(w *worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gather(w)
}

// rest gives a worker the next calls, or makes it idle. ok is false if it must not use its connection any more. Calls
// that wait are not sent on a connection that has ended after an answer: they might be lost.
func (l *lane) rest(w *worker) (calls, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || w.target != w.node.target.Load() || w.answered && len(l.queue) > 0 && !w.link.quiet() {
		return false, false
	}
	if l.gather(w) {
		return true, true
	}
	l.idle = append(l.idle, w)
	return false, true
}

// asked reports whether a worker has calls on the wire, whose replies begin to arrive. If not, it gets none any more.
func (l *lane) asked(w *worker) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	w.answered = true
	if i := slices.Index(l.idle, w); i >= 0 {
		l.idle = slices.Delete(l.idle, i, i+1)
	}
	return len(w.batch) > 0
}

// retire takes from a target the workers that are idle, and returns their connections, which the caller must close.
func (l *lane) retire(t *target) (idle []*link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = slices.DeleteFunc(l.idle, func(w *worker) bool {
		if w.target == t {
			idle = append(idle, w.link)
		}
		return w.target == t
	})
	return idle
}

// silent returns the connections to a target on which no reply has begun to arrive. The others end with their batch.
func (l *lane) silent(t *target) (links []*link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, w := range l.workers {
		if w.target == t && !w.answered {
			links = append(links, w.link)
		}
	}
	return links
}

// unread reports whether data has arrived on a connection of a worker that nothing has read.
func (l *lane) unread() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.workers, func(w *worker) bool { return w.link != nil && w.link.unread() })
}

// close ends all gathering, and fails the waiting calls. Then it closes the connections of idle workers.
func (l *lane) close() {
	l.mu.Lock()
	left, idle := l.queue, make([]*link, len(l.idle))
	for i, w := range l.idle {
		idle[i] = w.link
	}
	l.closed, l.queue, l.keys, l.idle = true, nil, 0, nil
	l.arrived.Broadcast()
	l.mu.Unlock()
	for _, c := range left { // without the lock: what follows may enter another call
		c.fail(ErrClosed)
	}
	closeAll(idle)
}
