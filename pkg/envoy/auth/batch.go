package auth

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Call is one request of a batch, and its answer.
type Call struct {
	// Request is a CheckRequest. It must not change before the answer.
	Request string
	// Deadline is that of the caller, the zero time if it has none.
	Deadline time.Time

	// Reply is a CheckResponse, Err the reason if there is none (see Answer). Delay is how long to hold the reply. Such a
	// reply has a place in the queue: call hold.Queue.Stay.
	Reply []byte
	Err   error
	Delay time.Duration
	// Waits means that there is no answer, because the decision may take long. Call Answer, in another goroutine.
	Waits bool
}

// batch has the requests of one call, or several.
type batch struct {
	checks  []*check // all that there are; those in use come first
	used    int
	queries []ratelimit.Query
	results []ratelimit.Result
}

// mostChecks bounds the memory that is kept for the next batch.
const mostChecks = 64

func (s *Server) batch() *batch { return s.batches.Get().(*batch) }

// add returns the next check of a batch.
func (b *batch) add() *check {
	if b.used == len(b.checks) {
		b.checks = append(b.checks, new(check))
	}
	b.used++
	return b.checks[b.used-1]
}

// release returns a batch of which nothing is used any more. After a panic, a batch is not used again.
func (s *Server) release(b *batch) {
	for _, c := range b.checks[:b.used] {
		c.reset()
	}
	clear(b.queries)
	clear(b.results)
	b.queries, b.results, b.used = b.queries[:0], b.results[:0], 0
	if len(b.checks) > mostChecks {
		b.checks, b.queries, b.results = b.checks[:mostChecks:mostChecks], nil, nil
	}
	s.batches.Put(b)
}

// AnswerAll answers calls, each by itself, with one call of the store. It appends their replies to out, which it
// returns. It neither waits for keys of tokens nor holds answers: see Call.
func (s *Server) AnswerAll(ctx context.Context, calls []Call, out []byte) []byte {
	b, now := s.batch(), time.Now()
	for i := range calls {
		b.begin(s, &calls[i], i, now)
	}
	b.results = append(b.results, make([]ratelimit.Result, len(b.queries))...)
	if len(b.queries) > 0 {
		s.cfg.Limiter.DecideAll(ctx, b.queries, b.results)
	}
	limited := 0
	for _, c := range b.checks[:b.used] {
		if len(c.pending.Query.Descriptors) > 0 {
			c.result = &b.results[limited]
			limited++
		}
		s.finish(ctx, c)
		begin := len(out)
		out = c.answer.appendResponse(out)
		calls[c.call].Reply, calls[c.call].Delay = out[begin:len(out):len(out)], c.delay
	}
	s.release(b)
	return out
}

// begin reads a call, and decides everything but its limits. Calls that are answered already have no check.
func (b *batch) begin(s *Server, call *Call, index int, now time.Time) {
	c := b.add()
	r := &c.read.request
	c.call = index
	c.begin(r, now, call.Deadline)
	if call.Err = c.read.unmarshal(call.Request); call.Err == nil {
		if !call.Deadline.IsZero() && !now.Before(call.Deadline) { // do not charge a request whose caller no longer waits
			call.Err = context.DeadlineExceeded
		}
	}
	if call.Err == nil {
		r.MaxHold = s.cfg.Queue.Most(c.ready, holdWithoutDeadline)
		call.Waits = !s.cfg.Authorizer.BeginNow(r, &c.pending)
	}
	if call.Err != nil || call.Waits {
		c.reset()
		b.used--
		return
	}
	if q := &c.pending.Query; len(q.Descriptors) > 0 {
		b.queries = append(b.queries, *q)
	}
}
