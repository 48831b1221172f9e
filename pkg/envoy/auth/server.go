package auth

import (
	"context"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// ServiceName is the full name of the gRPC service, Method the full name of its only method.
const (
	ServiceName = "envoy.service.auth.v3.Authorization"
	Method      = "/" + ServiceName + "/Check"
)

// Authorizer is *authz.Authorizer. Begin and BeginNow decide everything but the limits; Finish adds the limiter's
// result.
type Authorizer interface {
	Begin(ctx context.Context, r *authz.Request, p *authz.Pending)
	BeginNow(r *authz.Request, p *authz.Pending) (begun bool)
	Finish(p *authz.Pending, res *ratelimit.Result)
}

// Config are the settings of a server.
type Config struct {
	// Authorizer decides. Required.
	Authorizer Authorizer
	// Limiter decides the limits. Required if the authorizer uses any.
	Limiter *ratelimit.Limiter
	// Log gets once what an operator must check for HTTP. Required.
	Log *slog.Logger
	// Decided is called with each decision, for logs and traces. Optional.
	Decided func(ctx context.Context, c authz.Checked)
	// Queue holds answers (max_delay). A request that finds it full is undecided. Required.
	Queue *hold.Queue
	// HTTP are the settings of the HTTP service.
	HTTP HTTPConfig
}

// Server serves Check. It is safe for concurrent use.
type Server struct {
	cfg     Config
	dropped atomic.Uint64
	batches sync.Pool // of *batch
	// overHTTP runs on the first request over HTTP, noAddress on the first whose decision depends on an unknown address.
	overHTTP, noAddress sync.Once
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg}
	s.batches.New = func() any { return newBatch(s) }
	return s
}

// DroppedHeaders returns how many headers could not be sent because of their name or value.
func (s *Server) DroppedHeaders() uint64 { return s.dropped.Load() }

// Answer answers a CheckRequest with a CheckResponse, which it appends to out. It holds the answer as long as the
// decision requires. It returns an error only if the caller has gone or the message is malformed. Every other request
// is decided.
func (s *Server) Answer(ctx context.Context, request string, out []byte) ([]byte, error) {
	b := s.batches.Get().(*batch)
	c := b.add()
	if err := c.read.unmarshal(request); err != nil {
		return nil, err
	}
	s.decide(ctx, c, &c.read.request)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	out = c.answer.appendResponse(out)
	b.release()
	return out, nil
}

// margin is the part of the caller's deadline that remains for returning the answer. A late answer is useless: Envoy
// has already made an error of it, without a Retry-After.
const margin = 3 * time.Millisecond

// early returns when an answer must be ready for a caller with this deadline, the zero time for none. A caller with a
// deadline below four times the margin is answered earlier, but not refused.
func early(deadline, now time.Time) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	return deadline.Add(-min(margin, deadline.Sub(now)/4))
}

// decide decides a request and holds the answer as long as the decision requires.
func (s *Server) decide(ctx context.Context, c *check, r *authz.Request) {
	waiting := ctx
	deadline, _ := ctx.Deadline()
	c.begin(r, time.Now(), deadline)
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, c.ready)
		defer cancel()
	}
	if ctx.Err() != nil { // do not charge a request whose caller no longer waits
		c.late()
		s.answer(ctx, c)
		return
	}
	r.MaxHold = s.cfg.Queue.Most(c.left())
	s.cfg.Authorizer.Begin(ctx, r, &c.pending)
	if q := &c.pending.Query; len(q.Descriptors) > 0 {
		results := make([]ratelimit.Result, 1)
		s.cfg.Limiter.DecideAll(ctx, []ratelimit.Query{*q}, results)
		c.result = &results[0]
	}
	s.finish(ctx, c)
	if c.delay > 0 && !s.cfg.Queue.Stay(waiting, c.delay) { // the caller has gone, or its time is over
		c.late()
		c.answer.decide(r, &c.pending.Decision)
	}
}

// finish completes a decision and answers the request.
func (s *Server) finish(ctx context.Context, c *check) {
	s.cfg.Authorizer.Finish(&c.pending, c.result)
	d := &c.pending.Decision
	if delay := time.Duration(d.Delay) * time.Microsecond; d.Verdict == authz.Allowed && delay > 0 {
		if s.cfg.Queue.Enter(c.ready, delay) {
			c.delay = delay
		} else {
			c.late()
		}
	}
	s.answer(ctx, c)
}

// answer makes the answer for a decision, and reports it.
func (s *Server) answer(ctx context.Context, c *check) {
	c.answer.decide(c.request, &c.pending.Decision)
	if n := c.answer.dropped; n > 0 {
		s.dropped.Add(uint64(n))
	}
	if s.cfg.Decided == nil {
		return
	}
	checked := authz.Checked{
		Request: c.request, Decision: &c.pending.Decision, Result: c.result,
		Status: c.answer.status, DroppedHeaders: c.answer.dropped, Took: time.Since(c.began) + c.delay,
	}
	if c.result != nil {
		checked.Query = &c.pending.Query
	}
	s.cfg.Decided(ctx, checked)
}

// check is a request while it is answered. It can be used again, for its memory.
type check struct {
	read    checkRequest // what was read from a message
	request *authz.Request
	pending authz.Pending
	result  *ratelimit.Result // nil if no limit was asked
	answer  answer
	call    int // the index of its call in a batch
	began   time.Time
	ready   time.Time     // when the answer must be ready, the zero time without a deadline
	delay   time.Duration // how long to hold the answer, which has a place in the queue
}

func (c *check) begin(r *authz.Request, now, deadline time.Time) {
	c.request, c.began, c.ready = r, now, early(deadline, now)
}

// left returns how much time there was at the begin until the answer must be ready. Without a deadline, only the queue
// bounds a hold.
func (c *check) left() time.Duration {
	if c.ready.IsZero() {
		return math.MaxInt64
	}
	return c.ready.Sub(c.began)
}

// reset drops the request, with all texts of its message.
func (c *check) reset() {
	c.read.reset()
	c.pending.Reset()
	c.answer.reset()
	*c = check{read: c.read, pending: c.pending, answer: c.answer}
}

// late makes the decision an undecided one, because it came too late.
func (c *check) late() {
	d := &c.pending.Decision
	*d = authz.Decision{
		Verdict: authz.Undecided, Reason: reply.ReasonUndecided,
		Domain: d.Domain, Identity: d.Identity, Limits: d.Limits, Delay: d.Delay,
	}
}
