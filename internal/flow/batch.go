package flow

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// batch has the calls that are decided together, and all memory that they need until they are answered.
type batch struct {
	flow   *Flow
	resume func() // what the store calls; made once
	// turn is odd while the store has the batch. The store, or ask after its panic, makes it even and goes on.
	turn atomic.Uint32
	// keep means that the batch is not used again: the store has panicked, so its goroutines may still have the batch, or
	// net/http writes the texts of the answer later.
	keep bool
	// apart has the settlements of callers who may not wait for the store.
	apart *batch

	ctx    context.Context
	cancel context.CancelFunc // of ctx; nil without one
	// conn is the connection of the calls; nil for one call whose caller waits for ended.
	conn  *h2unary.Conn
	ended chan struct{}
	// mayWait means that the goroutine that begins the batch is its own, so that a decision may wait for keys.
	mayWait bool

	calls  []*call // those in use
	spare  []*call // for their memory
	texts  []byte  // the messages
	parts  rls.Memory
	rounds ratelimit.Rounds
	// out and headers are memory for one answer.
	out     []byte
	headers reply.List

	began   time.Time     // see now
	sent    time.Time     // when the store got the current round
	storing time.Duration // the time in the store so far
}

// call is one request until it is answered, with memory that is used again.
type call struct {
	request
	check  *check // memory for checks
	plan   ratelimit.Plan
	result ratelimit.Result
}

// request is what a call drops when it is answered.
type request struct {
	method   Method
	native   *h2unary.Call // nil for a call whose caller waits
	message  string
	deadline time.Time // the zero time for none
	span     telemetry.Span
	limit    ratelimit.Query
	query    *ratelimit.Query // limit, or that of check; nil if no limit is asked
	reply    []byte           // batch.out
	err      error            // why there is no reply
	delay    time.Duration    // how long to hold the answer, which has a place
	places   ratelimit.Places // in rules
	answered bool
	left     bool // see batch.leave
}

// check is what only a check needs.
type check struct {
	message auth.Message
	request *authz.Request // that of message, or one over HTTP
	pending authz.Pending
	answer  auth.Answer
}

// newBatch returns an empty batch for calls of a connection, nil for one call whose caller waits.
func (f *Flow) newBatch(conn *h2unary.Conn) *batch {
	b := f.batches.Get().(*batch)
	b.conn, b.ctx = conn, context.Background()
	return b
}

// now returns when the batch began. Unless Serve has set that, it reads the clock when it is first needed.
func (b *batch) now() time.Time {
	if b.began.IsZero() {
		b.began = time.Now()
	}
	return b.began
}

// read adds a call of the connection, with a copy of its message, whose buffer is used again during the decision.
func (b *batch) read(k *h2unary.Call) {
	c := b.add(Method(k.Method), texts.View(k.Message))
	c.native, c.deadline = k, k.Deadline
	c.span = b.flow.cfg.Traces.Start(spanNames[c.method], callHeaders{k})
}

// add adds a call, with a copy of its message.
func (b *batch) add(m Method, message string) *call {
	if n := len(b.spare); n > 0 {
		b.calls, b.spare = append(b.calls, b.spare[n-1]), b.spare[:n-1]
	} else {
		b.calls = append(b.calls, new(call))
	}
	c := b.calls[len(b.calls)-1]
	begin := len(b.texts)
	b.texts = append(b.texts, message...)
	c.method, c.message = m, texts.View(b.texts[begin:])
	if m == Check && c.check == nil {
		c.check = new(check)
	}
	return c
}

// The bounds of the memory of a batch that is kept for another one.
const (
	mostCalls = 128
	mostReply = 256 << 10
)

// release returns a batch of which nothing is used any more. All texts of its messages end.
func (b *batch) release() {
	if b.cancel != nil {
		b.cancel()
	}
	if b.keep || len(b.calls)+len(b.spare) > mostCalls || cap(b.out) > mostReply || b.parts.Large() {
		return
	}
	for _, c := range b.calls {
		c.reset()
	}
	b.spare, b.calls = append(b.spare, b.calls...), b.calls[:0]
	b.parts.Reset()
	b.rounds.Reset()
	b.headers.Reset()
	b.texts = texts.Reset(b.texts)
	b.ctx, b.cancel, b.conn, b.mayWait, b.began, b.storing = nil, nil, nil, false, time.Time{}, 0
	b.flow.batches.Put(b)
}

// reset drops the request, with all texts of its message.
func (c *call) reset() {
	c.plan.Reset()
	c.result.Clear()
	if c.method == Check {
		c.check.message.Reset()
		c.check.pending.Reset()
		c.check.answer.Reset()
		c.check.request = nil
	}
	c.request = request{}
}
