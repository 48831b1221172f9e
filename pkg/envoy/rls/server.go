package rls

import (
	"context"
	"sync"

	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// ServiceName is the full name of the gRPC service, Method the full name of its only method.
const (
	ServiceName = "envoy.service.ratelimit.v3.RateLimitService"
	Method      = "/" + ServiceName + "/ShouldRateLimit"
)

// Config are the settings of a server.
type Config struct {
	// Limiter decides. Required.
	Limiter *ratelimit.Limiter
	// Queue holds answers (max_delay). Required.
	Queue *hold.Queue
	// Headers are the headers to send to the client.
	Headers reply.Headers
	// ProblemBody sends a problem+json body with a denial.
	ProblemBody bool
	// Decided is called with each decision, for logs and traces. Both are valid until it returns. Optional.
	Decided func(ctx context.Context, q ratelimit.Query, res ratelimit.Result)
	// DynamicMetadata sends the decision and its rule to Envoy (RESPONSE_DYNAMIC_METADATA).
	DynamicMetadata bool
	// Strict sends what envoyproxy/ratelimit sends (COMPATIBILITY=strict). The limiter must be strict, too.
	Strict bool
}

// Server serves ShouldRateLimit. It is safe for concurrent use.
type Server struct {
	cfg     Config
	batches sync.Pool // of *batch
}

// New returns a server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg}
	s.batches.New = func() any { return newBatch(s) }
	return s
}

// Answer answers a RateLimitRequest with a RateLimitResponse, which it appends to out. It holds the answer as long as
// a max_delay requires. Its error is that of ctx, if the caller has gone while the answer was held, else a *wire.Error.
// InvalidArgument means a query that only a broken configuration can send. Unavailable means that there have been no
// rules yet, that the store of a strict limiter cannot decide, or that the answer cannot be held. Internal means a
// malformed message.
func (s *Server) Answer(ctx context.Context, request string, out []byte) ([]byte, error) {
	deadline, _ := ctx.Deadline()
	calls := [1]wire.Call{{Request: request, Deadline: deadline}}
	b := s.batches.Get().(*batch)
	b.read(calls[:])
	if len(b.queries) > 0 {
		s.cfg.Limiter.DecideAll(ctx, b.queries, b.results)
	}
	out = b.answer(ctx, calls[:], out)
	b.release()
	if err := calls[0].Err; err != nil {
		return nil, err
	}
	if delay := calls[0].Delay; delay > 0 && !s.cfg.Queue.Stay(ctx, delay) {
		return nil, ctx.Err()
	}
	return out, nil
}

// ErrNotHeld is the answer to a request that may pass later but cannot wait: the queue is full, or the time is over.
var ErrNotHeld = &wire.Error{Code: wire.Unavailable, Reason: "the answer cannot be held for max_delay"}
