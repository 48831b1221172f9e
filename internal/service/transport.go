package service

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/grpcgo"
	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/internal/settings"
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

// Bounds of both transports against broken clients. Each descriptor of a request holds at most the request headers that
// Envoy accepts, 60 kB by default. So no client of Envoy can make a request that is too large. connectTimeout includes
// the handshake of TLS.
const (
	maxRequest     = 1 << 20
	connectTimeout = 5 * time.Second
)

// services are what a transport serves, and what it reports to.
type services struct {
	settings *settings.Settings
	flow     *flow.Flow
	health   *health
	calls    *telemetry.Calls
	bugs     *panics
}

func (s *services) transport() transport {
	l := &s.settings.Listeners
	if l.Transport == nativeTransport {
		cfg := h2unary.Config{
			Methods: nativeMethods, Streams: map[string]bool{nativeMethods[watchMethod]: true},
			Serve: s.flow.Serve, Panicked: func(value any) { s.bugs.caught("gRPC", value) },
			MaxStreams: l.MaxStreams, MaxMessage: maxRequest,
			MaxAge: l.MaxConnAge, MaxAgeGrace: l.MaxConnGrace, ConnectTimeout: connectTimeout,
		}
		if s.settings.Telemetry.Tracing {
			cfg.Keep = telemetry.TraceHeaders()
		}
		return h2unary.New(cfg)
	}
	s.bugs.log.Warn("grpc-go serves gRPC, without bounds of floods, of the memory of all requests and of their time; " +
		"set GRPC_TRANSPORT=native unless only trusted clients reach the port")
	return grpcgo.New(grpcgo.Config{
		Flow: s.flow, Health: s.health, Calls: s.calls, MaxStreams: l.MaxStreams, MaxMessage: maxRequest,
		MaxAge: l.MaxConnAge, MaxAgeGrace: l.MaxConnGrace, ConnectTimeout: connectTimeout,
	})
}
