package service

import (
	"context"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/grpcgo"
	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// transport serves the gRPC port (GRPC_TRANSPORT).
type transport interface {
	// Serve serves until Shutdown. Its error then means that the server has been stopped.
	Serve(l *guard.Listener) error
	// Shutdown accepts no new requests. It waits for those in flight until ctx is done, then cuts them off.
	Shutdown(ctx context.Context)
}

// nativeTransport is the default of GRPC_TRANSPORT.
const nativeTransport = "native"

// Bounds of both transports against broken clients. A descriptor holds at most the headers that Envoy accepts, 60 kB by
// default, so no Envoy sends too large a request. connectTimeout includes the handshake of TLS.
const (
	maxRequest     = 1 << 20
	connectTimeout = 5 * time.Second
)

// transport returns the server of the gRPC port.
func (r *requests) transport() transport {
	l := &r.Settings.Listeners
	if l.Transport == nativeTransport {
		cfg := h2unary.Config{
			Methods: nativeMethods, Streams: map[string]bool{grpc_health_v1.Health_Watch_FullMethodName: true},
			Serve: r.Serve, Panicked: func(value any) { r.bugs.caught("gRPC", value) },
			MaxStreams: l.MaxStreams, MaxMessage: maxRequest,
			MaxAge: l.MaxConnAge, MaxAgeGrace: l.MaxConnGrace, ConnectTimeout: connectTimeout,
		}
		if r.Settings.Telemetry.Tracing {
			cfg.Keep = telemetry.TraceHeaders()
		}
		return h2unary.New(cfg)
	}
	r.log.Warn("grpc-go serves gRPC, without bounds of floods, of the memory of all requests and of their time; " +
		"set GRPC_TRANSPORT=native unless only trusted clients reach the port")
	return grpcgo.New(grpcgo.Config{
		Flow: r.Flow, Health: r.ready, Calls: r.calls, MaxStreams: l.MaxStreams, MaxMessage: maxRequest,
		MaxAge: l.MaxConnAge, MaxAgeGrace: l.MaxConnGrace, ConnectTimeout: connectTimeout,
	})
}
