package rls

import (
	"context"
	"errors"
	"time"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Call is one request of a batch, and its answer.
type Call struct {
	// Request is a RateLimitRequest.
	Request string
	// Deadline is that of the caller, the zero time if it has none.
	Deadline time.Time

	// Reply is a RateLimitResponse, Err the reason if there is none (see Answer), Delay how long to hold the answer.
	Reply []byte
	Err   error
	Delay time.Duration
}

// batch has the queries of the calls that could be read.
type batch struct {
	calls   []int // their indexes
	parts   parts // of the queries
	queries []ratelimit.Query
	results []ratelimit.Result
	headers reply.List // of one answer
}

// AnswerAll answers calls, each by itself, with one call of the store. It appends their replies to out, which it
// returns. It holds no answer: the caller must do so for Call.Delay.
func (s *Server) AnswerAll(ctx context.Context, calls []Call, out []byte) []byte {
	b, ok := s.batches.Get().(*batch)
	if !ok {
		b = new(batch)
	}
	for i := range calls {
		c := &calls[i]
		var q ratelimit.Query
		if c.Err = b.parts.unmarshal(c.Request, &q); c.Err != nil {
			continue
		}
		// A caller without a deadline has not stated that it waits, so its answer is not held.
		q.MaxHold = s.cfg.Queue.Most(c.Deadline, 0).Microseconds()
		b.calls, b.queries, b.results = append(b.calls, i), append(b.queries, q), append(b.results, ratelimit.Result{})
	}
	if len(b.queries) > 0 {
		s.cfg.Limiter.DecideAll(ctx, b.queries, b.results)
	}
	for i, call := range b.calls {
		out = s.answer(ctx, b, i, &calls[call], out)
	}
	clear(b.queries)
	clear(b.results)
	b.parts.reset()
	b.calls, b.queries, b.results = b.calls[:0], b.queries[:0], b.results[:0]
	s.batches.Put(b)
	return out
}

// answer answers the call of query i of a batch.
func (s *Server) answer(ctx context.Context, b *batch, i int, c *Call, out []byte) []byte {
	q, res := &b.queries[i], &b.results[i]
	if c.Err = s.decided(ctx, q, res); c.Err != nil {
		return out
	}
	begin := len(out)
	out = s.appendResponse(out, q, res, &b.headers)
	c.Reply, c.Delay = out[begin:len(out):len(out)], time.Duration(res.Delay)*time.Microsecond
	return out
}

// decided reports a decision, and returns why there is none, nil if there is one.
func (s *Server) decided(ctx context.Context, q *ratelimit.Query, res *ratelimit.Result) error {
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
