package service

import (
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// The methods of grpc.health.v1 on the native transport, as indexes of nativeMethods.
const (
	healthMethod = len(flow.Methods) + iota
	listMethod
	watchMethod
)

// nativeMethods are all methods of the native transport. Those of the flow come first.
var nativeMethods = append(flow.Methods[:len(flow.Methods):len(flow.Methods)],
	grpc_health_v1.Health_Check_FullMethodName, grpc_health_v1.Health_List_FullMethodName,
	grpc_health_v1.Health_Watch_FullMethodName)

// newNative returns the server of the native transport (internal/h2unary).
func newNative(s *services) *h2unary.Server {
	l := &s.settings.Listeners
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
