package flow

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/pkg/wire"
)

// deliver ends a call. If its caller waits, it finds the answer in the call.
func (b *batch) deliver(c *call, now time.Time) {
	switch k := c.native; {
	case k == nil:
		c.answered = true
	case c.delay > 0:
		c.answered = true
		b.flow.hold(b.conn, c, b.leave(c))
	default:
		b.flow.count(c.method, c.span, c.err, now.Sub(k.Arrived)) // first, because the answer ends the call
		c.answered = true
		late := !c.deadline.IsZero() && !now.Before(c.deadline)
		if !answer(k, c.reply, c.err) || late {
			b.flow.undo(c.method, b.leave(c))
		}
	}
}

// leave returns what undoes the holds of a call whose caller does not get the answer, nil for none. It does so once.
func (b *batch) leave(c *call) *ratelimit.Undo {
	if c.left || c.query == nil {
		return nil
	}
	c.left = true
	return c.plan.Undo(&b.rounds)
}

// undo removes the holds of a call that has ended before its answer was written. It does not wait.
func (f *Flow) undo(m Method, u *ratelimit.Undo) {
	if u != nil {
		f.protected(&m, u.Start)
	}
}

// fail answers a call that has caused a panic, unless it is answered already. A place in the queue is given back.
func (b *batch) fail(c *call) {
	if c.answered {
		return
	}
	c.plan.LeavePlaces()
	if c.delay > 0 {
		b.flow.cfg.Queue.Leave(c.places)
	}
	c.delay, c.err, c.answered = 0, errInternal, true
	if k := c.native; k != nil {
		b.flow.protected(&c.method, func() { b.flow.count(c.method, c.span, c.err, time.Since(k.Arrived)) })
		answer(k, nil, c.err)
	}
}

// count counts a call that ends, and ends its span.
func (f *Flow) count(m Method, span telemetry.Span, err error, took time.Duration) {
	code, _ := Status(err)
	f.counts[m]().Observe(code, took)
	span.EndGRPC(code)
}

// answer sends the answer of a call of the native transport. It returns false if the client no longer waits for it.
func answer(k *h2unary.Call, reply []byte, err error) (sent bool) {
	if err == nil {
		return k.Reply(reply)
	}
	return k.Fail(Status(err))
}

// end ends a batch whose calls are answered.
func (b *batch) end() {
	if b.conn == nil {
		b.ended <- struct{}{} // who receives it releases the batch
		return
	}
	if b.flow.cfg.Patience > 0 || b.mayWait { // else the goroutine that reads the connection flushes it
		b.conn.FlushSoon()
	}
	b.release()
}

// Status returns the code and the message of a call with an error: a *wire.Error, that of a context, or that of a
// malformed message. The code is OK for nil.
func Status(err error) (codes.Code, string) {
	if err == nil {
		return codes.OK, ""
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return codes.Code(e.Code), err.Error()
	}
	s := status.FromContextError(err)
	return s.Code(), s.Message()
}

// hold sends an answer after its delay (max_delay). It has a place in the queue. undo is for a caller who leaves.
func (f *Flow) hold(conn *h2unary.Conn, c *call, undo *ratelimit.Undo) {
	k, m, span, delay, places, reply := c.native, c.method, c.span, c.delay, c.places, slices.Clone(c.reply)
	go func() { // ends after the delay, or with the call
		var err error
		if ctx := k.Context(); !f.cfg.Queue.Stay(ctx, delay, places) {
			err = ctx.Err()
		}
		f.count(m, span, err, time.Since(k.Arrived))
		if !answer(k, reply, err) || err != nil {
			f.undo(m, undo)
		}
		runtime.Gosched() // answers that end together leave in one write
		conn.Flush()
	}()
}

// beginLater decides a check in a goroutine of its own, because its token waits for the keys of its issuer.
func (f *Flow) beginLater(conn *h2unary.Conn, c *call) {
	b := f.newBatch(conn)
	b.ctx, b.mayWait = c.native.Context(), true
	later := b.add(c.method, c.message)
	later.native, later.deadline, later.span = c.native, c.deadline, c.span
	c.answered = true
	go b.start() // ends with the answer
}

// settles reports whether a query ends holds. That must happen although its caller has gone.
func settles(q *ratelimit.Query) bool {
	for i := range q.Descriptors {
		entries := q.Descriptors[i].Entries
		if last := len(entries) - 1; last >= 0 && entries[last].Key == descriptors.HoldSettle {
			return true
		}
	}
	return false
}

// settleApart decides a call in a batch that does not end with its callers. It returns false if that is this one.
func (b *batch) settleApart(c *call) bool {
	if b.conn == nil {
		b.ctx = context.WithoutCancel(b.ctx)
		return false
	}
	if b.apart == nil {
		b.apart = b.flow.newBatch(b.conn)
		b.apart.began = b.began
	}
	later := b.apart.add(c.method, c.message)
	later.native, later.deadline, later.span = c.native, c.deadline, c.span
	c.answered = true
	return true
}

// newSingle returns a batch for one call whose caller waits (batch.wait). ctx ends the wait.
func (f *Flow) newSingle(ctx context.Context) *batch {
	b := f.newBatch(nil)
	b.ctx, b.mayWait = ctx, true
	return b
}

// wait decides the call of the batch, and returns when it is decided. The caller must release the batch.
func (b *batch) wait() {
	b.start()
	<-b.ended
}

// Answer decides a message of a method, and returns the message of its answer after its delay. Its error is one for
// Status. headers are those of the call, for traces.
func (f *Flow) Answer(ctx context.Context, m Method, message string, headers telemetry.Headers) ([]byte, error) {
	arrived := time.Now()
	b := f.newSingle(ctx)
	b.began = arrived
	c := b.add(m, message)
	c.deadline, _ = ctx.Deadline()
	c.span = f.cfg.Traces.Start(spanNames[m], headers)
	b.wait()
	reply, err, delay, places, span, undo := slices.Clone(c.reply), c.err, c.delay, c.places, c.span, b.leave(c)
	b.release()
	if delay > 0 && !f.cfg.Queue.Stay(ctx, delay, places) {
		reply, err = nil, ctx.Err()
	}
	if ctx.Err() != nil {
		f.undo(m, undo)
	}
	f.count(m, span, err, time.Since(arrived))
	return reply, err
}

var spanNames = [...]string{RateLimit: "ShouldRateLimit", Check: "Check"}

// callHeaders reads the headers of a call of the native transport.
type callHeaders struct{ call *h2unary.Call }

// Get implements telemetry.Headers.
func (h callHeaders) Get(name string) string { return h.call.Header(name) }
