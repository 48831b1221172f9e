package rls

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// batch has the queries of the calls that could be read.
type batch struct {
	calls   []int // their indexes
	parts   parts // of the queries
	queries []ratelimit.Query
	results []ratelimit.Result
	headers reply.List // of one answer

	// What follows is of a call of AnswerAll. decided is made once.
	server  *Server
	ctx     context.Context
	asked   []wire.Call
	out     []byte
	done    func(out []byte)
	decided func()
}

func newBatch(s *Server) *batch {
	b := &batch{server: s}
	b.decided = b.answerAll
	return b
}

// AnswerAll answers calls, each by itself, with one call of the store. It appends their replies to out, with which it
// calls done exactly once: before it returns, or later in a goroutine of the store. Until then, calls and out belong to
// the server. It holds no answer: the caller must do so for its Delay. A panic ends the batch: all calls get
// wire.ErrInternal, done is called, and the panic goes on. done must not wait for anything.
func (s *Server) AnswerAll(ctx context.Context, calls []wire.Call, out []byte, done func(out []byte)) {
	b := s.batches.Get().(*batch)
	b.ctx, b.asked, b.out, b.done = ctx, calls, out, done
	b.readAll()
	if len(b.queries) == 0 {
		b.answerAll()
		return
	}
	s.cfg.Limiter.Start(ctx, b.queries, b.results, b.decided) // it calls decided also after a panic
}

// readAll reads the calls of AnswerAll.
func (b *batch) readAll() {
	defer b.recovered()
	b.read(b.asked)
}

// answerAll answers the calls after the limiter has decided.
func (b *batch) answerAll() {
	b.finish()
	done, out := b.done, b.out
	b.release()
	done(out)
}

// finish appends the replies.
func (b *batch) finish() {
	defer b.recovered()
	b.out = b.answer(b.ctx, b.asked, b.out)
}

// recovered is deferred by each step of AnswerAll. After a panic, it ends the batch. The panic goes on, and the batch
// is not used again.
func (b *batch) recovered() {
	p := recover()
	if p == nil {
		return
	}
	for i := range b.asked {
		c := &b.asked[i]
		if c.Delay > 0 {
			b.server.cfg.Queue.Leave()
		}
		c.Err, c.Delay = wire.ErrInternal, 0
	}
	b.done(b.out)
	panic(p)
}

// read reads the requests of the calls.
func (b *batch) read(calls []wire.Call) {
	var now time.Time // read once, and only if needed
	for i := range calls {
		c := &calls[i]
		q := b.add(i)
		if c.Err = b.parts.unmarshal(c.Request, q); c.Err != nil {
			b.drop()
			continue
		}
		// A caller without a deadline has not stated that it waits, so its answer is not held.
		if c.Deadline.IsZero() {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		q.MaxHold = b.server.cfg.Queue.Most(c.Deadline.Sub(now)).Microseconds()
	}
}

// add adds an empty query for a call.
func (b *batch) add(call int) *ratelimit.Query {
	n := len(b.calls)
	b.calls = append(b.calls, call)
	b.queries = append(b.queries, ratelimit.Query{})
	b.results = slices.Grow(b.results, 1)[:n+1] // with the memory of an earlier result
	return &b.queries[n]
}

// drop drops the query that was added last.
func (b *batch) drop() {
	n := len(b.calls) - 1
	b.calls, b.queries, b.results = b.calls[:n], b.queries[:n], b.results[:n]
}

// answer appends the replies to out.
func (b *batch) answer(ctx context.Context, calls []wire.Call, out []byte) []byte {
	for i, call := range b.calls {
		out = b.server.answer(ctx, b, i, &calls[call], out)
	}
	return out
}

// release drops the queries and results, and keeps their memory for the next batch unless it is large.
func (b *batch) release() {
	if b.parts.large() {
		b.parts = parts{}
	}
	b.parts.reset()
	for i := range b.results {
		b.results[i].Clear()
	}
	clear(b.queries)
	b.headers.Reset()
	b.calls, b.queries, b.results = b.calls[:0], b.queries[:0], b.results[:0]
	b.ctx, b.asked, b.out, b.done = nil, nil, nil, nil
	b.server.batches.Put(b)
}

// answer answers the call of query i of a batch.
func (s *Server) answer(ctx context.Context, b *batch, i int, c *wire.Call, out []byte) []byte {
	q, res := &b.queries[i], &b.results[i]
	if c.Err = s.decided(ctx, q, res); c.Err != nil {
		return out
	}
	if delay := time.Duration(res.Delay) * time.Microsecond; delay > 0 {
		if !s.cfg.Queue.Enter(c.Deadline, delay) {
			c.Err = ErrNotHeld
			return out
		}
		c.Delay = delay
	}
	begin := len(out)
	out = s.appendResponse(out, q, res, &b.headers)
	c.Reply = out[begin:len(out):len(out)]
	return out
}

// decided reports a decision, and returns why there is none, nil if there is one.
func (s *Server) decided(ctx context.Context, q *ratelimit.Query, res *ratelimit.Result) error {
	if errors.Is(res.Err, ratelimit.ErrInternal) {
		return wire.ErrInternal
	}
	if s.cfg.Decided != nil {
		s.cfg.Decided(ctx, *q, *res)
	}
	_, mistake := errors.AsType[ratelimit.QueryError](res.Err)
	switch {
	case mistake:
		return &wire.Error{Code: wire.InvalidArgument, Reason: res.Err.Error()}
	case res.Err != nil:
		return &wire.Error{Code: wire.Unavailable, Reason: res.Err.Error()}
	}
	return nil
}
