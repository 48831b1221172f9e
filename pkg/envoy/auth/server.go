package auth

import (
	"context"
	"log/slog"
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

// Authorizer is *authz.Authorizer. Begin decides everything but the limits; Finish adds the limiter's result.
type Authorizer interface {
	Begin(ctx context.Context, r *authz.Request) *authz.Pending
	Finish(p *authz.Pending, res *ratelimit.Result) authz.Decision
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
	// overHTTP runs on the first request over HTTP, noAddress on the first whose decision depends on an unknown address.
	overHTTP, noAddress sync.Once
}

// New returns a server.
func New(cfg Config) *Server { return &Server{cfg: cfg} }

// DroppedHeaders returns how many headers could not be sent because of their name or value.
func (s *Server) DroppedHeaders() uint64 { return s.dropped.Load() }

// Answer answers a CheckRequest with a CheckResponse, which it appends to out. It returns an error only if the caller
// has gone or the message is malformed. Every other request is decided.
func (s *Server) Answer(ctx context.Context, request string, out []byte) ([]byte, error) {
	c := new(checkRequest)
	if err := c.unmarshal(request); err != nil {
		return nil, err
	}
	a := s.decide(ctx, &c.request)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return a.appendResponse(out), nil
}

// margin is the part of the caller's deadline that remains for returning the answer. A late answer is useless: Envoy
// has already made an error of it, without a Retry-After.
const margin = 3 * time.Millisecond

// holdWithoutDeadline bounds the hold if the caller has no deadline.
const holdWithoutDeadline = time.Minute

// decide decides a request and holds the answer as long as the decision requires.
func (s *Server) decide(ctx context.Context, r *authz.Request) answer {
	begin := time.Now()
	deadline, ok := ctx.Deadline()
	if ok {
		var cancel context.CancelFunc
		// A caller with a deadline below four times the margin is answered earlier, but not refused.
		deadline = deadline.Add(-min(margin, deadline.Sub(begin)/4))
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	var d authz.Decision
	c := authz.Checked{Request: r}
	if ctx.Err() != nil { // do not charge a request whose caller no longer waits
		d = late(d)
	} else {
		r.MaxHold = s.cfg.Queue.Most(deadline, holdWithoutDeadline)
		d = s.ask(ctx, &c)
	}
	if d.Verdict == authz.Allowed && !s.cfg.Queue.Wait(ctx, time.Duration(d.Delay)*time.Microsecond) {
		d = late(d)
	}
	a := newAnswer(r, &d)
	s.dropped.Add(uint64(a.dropped))
	if s.cfg.Decided != nil {
		c.Decision, c.Status, c.DroppedHeaders, c.Took = &d, a.status, a.dropped, time.Since(begin)
		s.cfg.Decided(ctx, c)
	}
	return a
}

func (s *Server) ask(ctx context.Context, c *authz.Checked) authz.Decision {
	p := s.cfg.Authorizer.Begin(ctx, c.Request)
	if len(p.Query.Descriptors) == 0 {
		return s.cfg.Authorizer.Finish(p, nil)
	}
	results := make([]ratelimit.Result, 1)
	s.cfg.Limiter.DecideAll(ctx, []ratelimit.Query{p.Query}, results)
	c.Query, c.Result = &p.Query, &results[0]
	return s.cfg.Authorizer.Finish(p, c.Result)
}

// late makes the decision an undecided one, because it came too late.
func late(d authz.Decision) authz.Decision {
	return authz.Decision{
		Verdict: authz.Undecided, Reason: reply.ReasonUndecided,
		Domain: d.Domain, Identity: d.Identity, Limits: d.Limits, Delay: d.Delay,
	}
}
