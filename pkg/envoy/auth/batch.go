package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// batch has the requests of one call of AnswerAll, or the one of Answer. It can be used again, for its memory.
type batch struct {
	checks  []*check // those in use come first
	used    int
	queries []ratelimit.Query // of the checks that ask the limiter
	results []ratelimit.Result

	// What follows is of a call of AnswerAll. decided is made once.
	server  *Server
	ctx     context.Context
	calls   []wire.Call
	out     []byte
	done    func(out []byte)
	decided func()
}

// mostChecks bounds the memory that is kept for the next batch.
const mostChecks = 128

func newBatch(s *Server) *batch {
	b := &batch{server: s}
	b.decided = b.answerAll
	return b
}

// AnswerAll answers calls, each by itself, with one call of the store. It appends their replies to out, with which it
// calls done exactly once: before it returns, or later in a goroutine of the store. Until then, calls and out belong to
// the server. A call whose decision may take long without the store gets no answer, but Call.Waits: call Answer for it,
// in a goroutine of its own. A panic ends the batch: all calls get wire.ErrInternal, done is called, and the panic goes
// on. done must not wait for anything.
func (s *Server) AnswerAll(ctx context.Context, calls []wire.Call, out []byte, done func(out []byte)) {
	b := s.batches.Get().(*batch)
	b.ctx, b.calls, b.out, b.done = ctx, calls, out, done
	b.beginAll()
	if len(b.queries) == 0 {
		b.answerAll()
		return
	}
	s.cfg.Limiter.Start(ctx, b.queries, b.results, b.decided) // it calls decided also after a panic
}

// beginAll reads the calls, and decides everything but their limits.
func (b *batch) beginAll() {
	defer b.recovered()
	now := time.Now()
	for i := range b.calls {
		b.begin(i, now)
	}
}

// begin reads a call, and decides everything but its limits.
func (b *batch) begin(i int, now time.Time) {
	call, c := &b.calls[i], b.add()
	c.call = i
	call.Err = c.read.unmarshal(call.Request)
	if call.Err == nil && !call.Deadline.IsZero() && !now.Before(call.Deadline) {
		call.Err = context.DeadlineExceeded // do not charge a request whose caller no longer waits
	}
	if call.Err == nil {
		c.begin(&c.read.request, now, call.Deadline)
		c.request.MaxHold = b.server.cfg.Queue.Most(c.left())
		call.Waits = !b.server.cfg.Authorizer.BeginNow(c.request, &c.pending)
	}
	if call.Err != nil || call.Waits {
		c.reset()
		b.used--
		return
	}
	if q := &c.pending.Query; len(q.Descriptors) > 0 {
		b.queries = append(b.queries, *q)
		b.results = slices.Grow(b.results, 1)[:len(b.queries)] // with the memory of an earlier result
	}
}

// answerAll answers the calls after the limiter has decided.
func (b *batch) answerAll() {
	b.finishAll()
	done, out := b.done, b.out
	b.release()
	done(out)
}

// finishAll completes the decisions, and appends the replies.
func (b *batch) finishAll() {
	defer b.recovered()
	limited := 0
	for _, c := range b.checks[:b.used] {
		if len(c.pending.Query.Descriptors) > 0 {
			c.result = &b.results[limited]
			limited++
		}
		b.finish(c, &b.calls[c.call])
	}
}

// finish answers a call.
func (b *batch) finish(c *check, call *wire.Call) {
	if c.result != nil && errors.Is(c.result.Err, ratelimit.ErrInternal) {
		call.Err = wire.ErrInternal
		return
	}
	b.server.finish(b.ctx, c)
	begin := len(b.out)
	b.out = c.answer.appendResponse(b.out)
	call.Reply, call.Delay = b.out[begin:len(b.out):len(b.out)], c.delay
}

// recovered is deferred by each step of AnswerAll. After a panic, it ends the batch. The panic goes on, and the batch
// is not used again.
func (b *batch) recovered() {
	p := recover()
	if p == nil {
		return
	}
	for _, c := range b.checks[:b.used] {
		if c.delay > 0 {
			b.server.cfg.Queue.Leave()
		}
	}
	for i := range b.calls {
		b.calls[i].Err, b.calls[i].Waits, b.calls[i].Delay = wire.ErrInternal, false, 0
	}
	b.done(b.out)
	panic(p)
}

// add returns the next check of a batch.
func (b *batch) add() *check {
	if b.used == len(b.checks) {
		b.checks = append(b.checks, new(check))
	}
	b.used++
	return b.checks[b.used-1]
}

// release returns a batch of which nothing is used any more.
func (b *batch) release() {
	for _, c := range b.checks[:b.used] {
		c.reset()
	}
	for i := range b.results {
		b.results[i].Clear()
	}
	clear(b.queries)
	b.queries, b.results, b.used = b.queries[:0], b.results[:0], 0
	if len(b.checks) > mostChecks {
		b.checks, b.queries, b.results = nil, nil, nil
	}
	b.ctx, b.calls, b.out, b.done = nil, nil, nil, nil
	b.server.batches.Put(b)
}
