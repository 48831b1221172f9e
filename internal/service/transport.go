package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/hold"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// transport serves the gRPC port (GRPC_TRANSPORT).
type transport interface {
	// Serve serves until Shutdown. Its error then means that the server has been stopped.
	Serve(l *guard.Listener) error
	// Shutdown accepts no new requests. It waits for those in flight until ctx is done, then cuts them off.
	Shutdown(ctx context.Context)
}

// services are what a transport serves, and what it reports to.
type services struct {
	settings *Settings
	limits   *rls.Server
	check    *auth.Server
	health   *health
	calls    *telemetry.Calls
	bugs     *panics
	traces   *tracing
	queue    *hold.Queue
}

func (s *services) transport() transport {
	if s.settings.Transport == nativeTransport {
		return newNative(s)
	}
	g := newGRPCServer(s.settings, s.calls, s.bugs, s.traces.options()...)
	unary.Register(g, rls.Method, s.limits.Answer)
	unary.Register(g, auth.Method, s.check.Answer)
	grpc_health_v1.RegisterHealthServer(g, s.health)
	return grpcGo{g}
}

// The words of GRPC_TRANSPORT.
const nativeTransport = "native"

// grpcGo is the transport of grpc-go.
type grpcGo struct{ *grpc.Server }

// Serve implements transport.
func (g grpcGo) Serve(l *guard.Listener) error { return g.Server.Serve(l) }

// Shutdown implements transport.
func (g grpcGo) Shutdown(ctx context.Context) {
	defer context.AfterFunc(ctx, g.Stop)() // it cuts off requests that are still in flight
	g.GracefulStop()
}
