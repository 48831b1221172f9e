package service

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// callBatch has the calls of one method that one read of a connection has completed. They are decided together. If they
// wait for Redis, the connection is read on meanwhile, and the goroutine that has read the answer of Redis answers
// them.
type callBatch struct {
	native   *native
	answered func(out []byte) // answers the calls; made once

	method int
	conn   *h2unary.Conn
	calls  []*h2unary.Call
	asked  []wire.Call // by index of calls
	out    []byte      // memory for the replies
	texts  []byte      // the requests
	// cancel releases the context of a batch with a deadline; nil without one.
	cancel context.CancelFunc
}

func newCallBatch(n *native) *callBatch {
	b := &callBatch{native: n}
	b.answered = b.answer
	return b
}

func (n *native) newBatch(c *h2unary.Conn, method int) *callBatch {
	b := n.batches.Get().(*callBatch)
	b.conn, b.method = c, method
	return b
}

// mostReplies is the most memory for replies that a batch keeps for the next one.
const mostReplies = 256 << 10

// release returns a batch of which nothing is used any more.
func (b *callBatch) release() {
	if b.cancel != nil {
		b.cancel()
		b.cancel = nil
	}
	clear(b.calls)
	clear(b.asked)
	if cap(b.out) > mostReplies {
		b.out = nil
	}
	b.conn, b.calls, b.asked, b.texts = nil, b.calls[:0], b.asked[:0], texts.Reset(b.texts)
	b.native.batches.Put(b)
}

// add adds a call. Its message is copied, because the buffer of the connection is used again while the decision waits
// for Redis. Nothing of the copy is used after release.
func (b *callBatch) add(k *h2unary.Call, message string) {
	length := len(b.texts)
	b.texts = append(b.texts, message...)
	b.calls = append(b.calls, k)
	b.asked = append(b.asked, wire.Call{Request: texts.View(b.texts[length:]), Deadline: k.Deadline})
}

// decideInTime decides a batch whose decisions wait for Redis. Only the timeouts of the store bound the batch, so that
// no caller ends the wait of the others. Callers with less time are decided apart: those with the same deadline
// together, as requests of one read usually have, and others each by itself.
func (n *native) decideInTime(b *callBatch) {
	soon, patient := time.Now().Add(n.margin), 0
	var hurried *callBatch
	for i, k := range b.calls {
		asked := &b.asked[i]
		switch d := asked.Deadline; {
		case d.IsZero() || d.After(soon):
			b.calls[patient], b.asked[patient] = k, *asked
			patient++
		case hurried == nil:
			hurried = n.newBatch(b.conn, b.method)
			hurried.add(k, asked.Request)
		case d.Equal(hurried.asked[0].Deadline):
			hurried.add(k, asked.Request)
		default:
			n.decideAlone(b.conn, k, asked.Request)
		}
	}
	clear(b.calls[patient:])
	clear(b.asked[patient:])
	b.calls, b.asked = b.calls[:patient], b.asked[:patient]
	if hurried != nil {
		n.decideBefore(hurried, hurried.asked[0].Deadline)
	}
	if patient == 0 {
		b.release()
		return
	}
	n.decide(context.Background(), b)
}

// decideAlone decides a call by itself.
func (n *native) decideAlone(c *h2unary.Conn, k *h2unary.Call, request string) {
	single := n.newBatch(c, k.Method)
	single.add(k, request)
	n.decideBefore(single, k.Deadline)
}

// decideBefore decides a batch before a deadline, the zero time for none.
func (n *native) decideBefore(b *callBatch, deadline time.Time) {
	ctx := context.Background()
	if !deadline.IsZero() {
		ctx, b.cancel = context.WithDeadline(ctx, deadline)
	}
	n.decide(ctx, b)
}

// decide begins to decide a batch with one call of the store. The calls may be answered when it returns, or later, also
// after a panic.
func (n *native) decide(ctx context.Context, b *callBatch) {
	method := b.method
	defer func() {
		if p := recover(); p != nil {
			n.bugs.caught(nativeMethods[method], p)
		}
	}()
	if method == checkMethod {
		n.check.AnswerAll(ctx, b.asked, b.out[:0], b.answered)
		return
	}
	n.limits.AnswerAll(ctx, b.asked, b.out[:0], b.answered)
}

// answer answers the calls of a batch, and releases it. It never panics.
func (b *callBatch) answer(out []byte) {
	b.out = out
	b.answerAll()
	if b.native.waits {
		b.conn.FlushSoon()
	}
	b.release()
}

// answerAll answers each call once. If answering one causes a panic, that call and the rest of them fail.
func (b *callBatch) answerAll() {
	n, answered := b.native, 0
	defer func() {
		if p := recover(); p != nil {
			n.bugs.caught(nativeMethods[b.method], p)
			for i, k := range b.calls[answered:] {
				if b.asked[answered+i].Delay > 0 {
					n.queue.Leave()
				}
				k.Fail(codes.Internal, wire.ErrInternal.Reason)
			}
		}
	}()
	count, now := n.calls.Of(nativeMethods[b.method]), time.Now()
	for i, k := range b.calls {
		switch asked := &b.asked[i]; {
		case asked.Waits:
			n.detach(b.conn, k, strings.Clone(asked.Request))
		case errors.Is(asked.Err, wire.ErrInternal) && len(b.calls) > 1:
			// One of the requests causes a panic. Only that one may fail: so each is decided by itself. A request that was
			// charged before the panic is charged again.
			n.decideAlone(b.conn, k, asked.Request)
		case asked.Err == nil && asked.Delay > 0:
			n.hold(b.conn, k, asked.Delay, slices.Clone(asked.Reply))
		default:
			deliver(k, asked.Reply, asked.Err, count, now)
		}
		answered++
	}
}

// hold sends an answer after its delay (max_delay). It has a place in the queue.
func (n *native) hold(c *h2unary.Conn, k *h2unary.Call, delay time.Duration, reply []byte) {
	n.run(c, k.Method, func() {
		ctx := k.Context()
		if !n.queue.Stay(ctx, delay) {
			n.reply(k, nil, ctx.Err())
			return
		}
		n.reply(k, reply, nil)
	})
}
