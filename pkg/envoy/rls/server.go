// Package rls is Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService, over gRPC and as JSON over HTTP.
package rls

import (
	"context"
	"errors"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// ServiceName is the full name of the gRPC service.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Config are the settings of a server.
type Config struct {
	// Limiter decides. Required.
	Limiter *ratelimit.Limiter
	// Headers are the ones to send to the client.
	Headers reply.Headers
	// ProblemBody sends a problem+json body with a denial.
	ProblemBody bool
	// DynamicMetadata tells Envoy what was decided and by which rule (RESPONSE_DYNAMIC_METADATA).
	DynamicMetadata bool
}

// Server answers ShouldRateLimit. It is safe for concurrent use.
type Server struct{ cfg Config }

// New returns a server.
func New(cfg Config) *Server { return &Server{cfg} }

// Register adds the service to a gRPC server, which must have been made with wire.Codec.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: handle}},
		Metadata:    "envoy/service/ratelimit/v3/rls.proto",
	}, s)
}

func handle(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	r := new(request)
	if err := decode(r); err != nil {
		return nil, err
	}
	s := srv.(*Server) // Register's
	if interceptor == nil {
		return s.answer(ctx, r)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + ServiceName + "/ShouldRateLimit"}
	return interceptor(ctx, r, info, func(ctx context.Context, _ any) (any, error) { return s.answer(ctx, r) })
}

// answer answers a request off the wire.
func (s *Server) answer(ctx context.Context, r *request) (*ratelimitv3.RateLimitResponse, error) {
	if r.refused != nil {
		return nil, status.Error(codes.InvalidArgument, r.refused.Error())
	}
	return s.shouldRateLimit(ctx, r.query)
}

// shouldRateLimit answers a query. Its errors are INVALID_ARGUMENT for what only a broken configuration can send, and
// UNAVAILABLE when the limiter is strict and the store can not decide.
func (s *Server) shouldRateLimit(ctx context.Context, q ratelimit.Query) (*ratelimitv3.RateLimitResponse, error) {
	q.MaxHold = maxHold(ctx)
	res := s.decide(ctx, q)
	if res.Err != nil {
		return nil, status.Error(errorCode(res.Err), res.Err.Error())
	}
	hold(ctx, res.Delay)
	return s.response(&q, &res), nil
}

func (s *Server) decide(ctx context.Context, q ratelimit.Query) ratelimit.Result {
	var results [1]ratelimit.Result
	s.cfg.Limiter.DecideAll(ctx, []ratelimit.Query{q}, results[:])
	return results[0]
}

// holdMargin is what is left of the caller's deadline for an answer that was held.
const holdMargin = 5 * time.Millisecond

// maxHold is how long an answer can be held, in µs, for limits with a max_delay: nothing without a deadline, because then nobody
// has said that he waits.
func maxHold(ctx context.Context) int64 {
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0
	}
	return max(0, (time.Until(deadline) - holdMargin).Microseconds())
}

// hold waits for µs, or until the caller gives up.
func hold(ctx context.Context, micros int64) {
	if micros <= 0 {
		return
	}
	timer := time.NewTimer(time.Duration(micros) * time.Microsecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func errorCode(err error) codes.Code {
	var override *ratelimit.OverrideError
	if errors.Is(err, ratelimit.ErrNoDomain) || errors.Is(err, ratelimit.ErrNoDescriptors) || errors.As(err, &override) {
		return codes.InvalidArgument
	}
	return codes.Unavailable
}
