package service

import (
	"context"
	"slices"
	"time"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
)

// limitBatch has the requests for the rate limit service that one read of a connection has completed.
type limitBatch struct {
	conn  *h2unary.Conn
	calls []*h2unary.Call
	asked []rls.Call // by index of calls
	out   []byte     // memory for the replies
}

func (n *native) newBatch(c *h2unary.Conn) *limitBatch {
	b, ok := n.batches.Get().(*limitBatch)
	if !ok {
		b = new(limitBatch)
	}
	b.conn = c
	return b
}

// release returns a batch of which nothing is used any more.
func (n *native) release(b *limitBatch) {
	clear(b.calls)
	clear(b.asked)
	b.conn, b.calls, b.asked = nil, b.calls[:0], b.asked[:0]
	n.batches.Put(b)
}

// add adds a call. Its message is copied, because the decision keeps parts of it.
func (b *limitBatch) add(k *h2unary.Call) {
	b.calls = append(b.calls, k)
	b.asked = append(b.asked, rls.Call{Request: string(k.Message), Deadline: k.Deadline})
}

// answerLater answers a batch whose decisions wait for Redis. Only the timeouts of the store bound the batch, so that
// no caller ends the wait of the others. A caller with less time is decided by itself, with its deadline.
func (n *native) answerLater(b *limitBatch) {
	soon := time.Now().Add(n.margin)
	for i := 0; i < len(b.calls); {
		if d := b.asked[i].Deadline; d.IsZero() || d.After(soon) {
			i++
			continue
		}
		k, request := b.calls[i], b.asked[i].Request
		b.calls, b.asked = slices.Delete(b.calls, i, i+1), slices.Delete(b.asked, i, i+1)
		n.run(b.conn, limitMethod, func() { n.answer(k, request, n.limits.Answer) })
	}
	n.answerBatch(context.Background(), b)
}

// answerBatch decides a batch with one call of the store, and releases it.
func (n *native) answerBatch(ctx context.Context, b *limitBatch) {
	if !n.decide(ctx, b) && len(b.calls) > 1 {
		// One of the requests causes a panic. Only that one may fail: so each is decided by itself. A request that was
		// charged before the panic is charged again.
		for i, k := range b.calls {
			single := n.newBatch(b.conn)
			single.calls = append(single.calls, k)
			single.asked = append(single.asked, rls.Call{Request: b.asked[i].Request, Deadline: b.asked[i].Deadline})
			n.answerBatch(ctx, single)
		}
		n.release(b)
		return
	}
	for i, k := range b.calls {
		asked := &b.asked[i]
		if asked.Err == nil && asked.Delay > 0 {
			n.hold(b.conn, k, asked.Delay, slices.Clone(asked.Reply))
			continue
		}
		n.reply(k, asked.Reply, asked.Err)
	}
	n.release(b)
}

// decide decides a batch. It returns false after a panic: then all requests have failed.
func (n *native) decide(ctx context.Context, b *limitBatch) (decided bool) {
	defer func() {
		if p := recover(); p != nil {
			n.bugs.caught(rls.Method, p)
			for i := range b.asked {
				b.asked[i].Err = errInternal
			}
		}
	}()
	b.out = n.limits.AnswerAll(ctx, b.asked, b.out[:0])
	return true
}

// hold sends an answer after its delay (max_delay).
func (n *native) hold(c *h2unary.Conn, k *h2unary.Call, delay time.Duration, reply []byte) {
	n.run(c, limitMethod, func() {
		var err error
		if !n.queue.Wait(k.Context(), delay) {
			err = rls.ErrNotHeld
		}
		n.reply(k, reply, err)
	})
}
