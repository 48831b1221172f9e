package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// worker lets Redis decide one batch of calls after the other, over a connection of its own. Its goroutine reads the
// replies and ends the calls. The commands are written by the caller that finds the worker idle, so that no goroutine
// has to be woken for that. If all workers are busy, the next free one takes what has gathered.
type worker struct {
	node *node
	connection
	attempt *attempt // to connect, for calls that did not wait so long; nil for none
	in      replies
	watch   watch

	// The batch on the wire. sending is held from when the worker gets it until its commands are written. The goroutine of
	// the worker has all else after that.
	sending    sync.Mutex
	answered   bool // of lane.mu: replies have begun to arrive, on this connection
	batch      []*call
	chunks     []*chunk
	joined     []joined
	out        []byte // the commands
	failed     error  // of the write
	began, end time.Time
	slow       *time.Timer // trips the breaker; nil for a batch that soon ends
}

// maxAtOnce is the largest write that does not wait. Redis has answered all that was written on the connection of an
// idle worker, so the buffer of the socket is empty.
const maxAtOnce = 16 << 10

// work lets Redis decide calls until the lane is closed.
func (w *worker) work(ctx context.Context) {
	for {
		until, ok := w.node.lane.await()
		if !ok {
			break
		}
		if w.open(ctx, until) {
			w.serve()
			w.disconnect()
		}
	}
	w.forget()
}

// open connects for the calls that wait in the lane, the most patient until a time. If that fails, open ends them. If
// it takes long, they end by themselves, and nothing is charged.
func (w *worker) open(ctx context.Context, until time.Time) bool {
	n := w.node
	w.begin(until)
	made, err := w.connect(ctx, w.end)
	w.stopSlow()
	switch {
	case err == nil:
		n.lane.mu.Lock()
		defer n.lane.mu.Unlock()
		w.connection, w.in, w.answered = made, replies{from: made.link}, false
		return true
	case ctx.Err() != nil: // the node is being closed
	case errors.Is(err, errConnecting) || !n.lane.take(w):
		n.breaker.report(err, w.began, w.end)
	default:
		w.prepare()
		w.sending.Unlock()
		for _, ch := range w.chunks {
			ch.err = err
		}
		w.conclude()
	}
	return false
}

func (w *worker) disconnect() {
	w.close()
	w.node.lane.mu.Lock()
	defer w.node.lane.mu.Unlock()
	w.connection = connection{}
}

// serve decides calls as long as the connection can be used.
func (w *worker) serve() {
	for {
		calls, ok := w.node.lane.rest(w)
		if !ok {
			return
		}
		if calls {
			w.send()
		}
		err := w.in.fill()
		if !w.node.lane.asked(w) {
			return // the connection has ended, or Redis has sent what no call has asked for
		}
		if w.receive(err) != nil {
			return
		}
	}
}

// begin sets the end of a batch: that of the most patient caller, so that one that gives up does not affect the others.
func (w *worker) begin(until time.Time) {
	w.began = time.Now()
	w.end = w.began.Add(min(w.node.cfg.Timeout, patience))
	if until.After(w.end) {
		w.end = until
	}
	if w.end.Sub(w.began) > failureTime { // a hanging Redis may keep all workers that long
		began := w.began
		w.slow = time.AfterFunc(failureTime, func() { w.node.slow(began) })
	}
}

// errSlow is the error of a call that takes failureTime, and goes on.
var errSlow = fmt.Errorf("no answer within %s", failureTime)

// slow opens the breaker because a call has taken failureTime, unless this process has had no CPU: its timer is late,
// or nothing has read a reply that has arrived.
func (n *node) slow(began time.Time) {
	if !late(began, began.Add(failureTime), time.Now()) && !n.lane.unread() {
		n.breaker.trip(errSlow)
	}
}

func (w *worker) stopSlow() {
	if w.slow != nil {
		w.slow.Stop()
		w.slow = nil
	}
}

// prepare makes the chunks of the batch.
func (w *worker) prepare() {
	if len(w.batch) == 1 {
		for i := range w.batch[0].chunks {
			w.chunks = append(w.chunks, &w.batch[0].chunks[i])
		}
		return
	}
	w.joined = join(w.joined, w.batch)
	for i := range w.joined {
		w.chunks = append(w.chunks, &w.joined[i].chunk)
	}
}

// send sends the commands of the batch. It does not wait for Redis.
func (w *worker) send() {
	w.begin(latest(w.batch))
	w.prepare()
	for _, ch := range w.chunks {
		w.out = ch.appendCommand(w.out, "EVALSHA", scriptName)
	}
	w.watch.begin(w.link, w.end)
	if len(w.out) > maxAtOnce {
		go w.write()
		return
	}
	w.write()
}

// write writes the commands of the batch.
func (w *worker) write() {
	n, err := w.link.Write(w.out)
	if err != nil {
		_ = w.link.Close() // so that receive does not wait
	}
	if w.failed = err; err != nil && n == 0 {
		w.failed = fmt.Errorf("%w: %w", errNotSent, err)
	}
	w.sending.Unlock()
}

// errNotSent means that a connection has ended before anything was sent.
var errNotSent = errors.New("nothing was sent")

// receive reads the replies and ends the calls. err is that of the first read. It returns the error of the connection.
func (w *worker) receive(err error) error {
	w.sending.Lock() // until the commands are written
	if w.failed != nil {
		err = w.failed
	}
	w.sending.Unlock()
	for _, ch := range w.chunks {
		if err == nil {
			err = w.read(ch, w.began)
		} else {
			ch.err = err
		}
	}
	for _, ch := range w.chunks {
		// Redis forgets scripts when it restarts. EVAL sends the script again.
		if err == nil && code(ch.err) == "NOSCRIPT" {
			w.node.epoch.notice(ch.err)
			err = w.repeat(ch)
		}
	}
	w.watch.stop()
	w.conclude()
	if left := w.in.reset(); left && err == nil {
		return errReply
	}
	return err
}

// repeat sends the requests of a chunk with the script.
func (w *worker) repeat(ch *chunk) error {
	sent := time.Now()
	if _, ch.err = w.link.Write(ch.appendCommand(nil, "EVAL", script)); ch.err != nil {
		return ch.err
	}
	return w.read(ch, sent)
}

// conclude ends the calls of the batch, whose chunks have the answers.
func (w *worker) conclude() {
	n := w.node
	w.stopSlow()
	if n.cfg.Took != nil {
		n.cfg.Took(time.Since(w.began))
	}
	var failed error
	for _, ch := range w.chunks {
		if ch.err == nil {
			continue
		}
		if failed == nil && !elsewhere(ch.err) {
			failed = ch.err
		}
		n.epoch.notice(ch.err)
		if !notRun(ch.err) {
			ch.err = fmt.Errorf("redis: %w: %w", ratelimit.ErrOutcomeUnknown, ch.err)
		}
	}
	if w.target == nil || w.target == n.target.Load() { // else the result says nothing about the new one
		n.breaker.report(failed, w.began, w.end)
	}
	if len(w.batch) > 1 {
		for i := range w.joined {
			w.joined[i].share()
		}
	}
	for _, c := range w.batch {
		c.answer()
	}
	w.release()
}

// mostKept is the largest memory for commands that a worker keeps.
const mostKept = 64 << 10

// release ends the batch. The worker keeps its memory for the next one, but nothing in it.
func (w *worker) release() {
	clear(w.batch)
	clear(w.chunks)
	w.batch, w.chunks, w.out = w.batch[:0], w.chunks[:0], w.out[:0]
	if cap(w.out) > mostKept {
		w.chunks, w.out, w.joined = nil, nil, nil
	}
}
