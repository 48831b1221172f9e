package service

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// maxTraceFlush bounds the end of the service if the collector does not answer.
const maxTraceFlush = 3 * time.Second

// tracing starts the spans of requests. It is nil without TRACING_ENABLED: then no request passes it.
type tracing struct{ *telemetry.Tracing }

// openTracing returns nil if nothing is traced.
func openTracing(ctx context.Context, s *Settings, log *slog.Logger) (*tracing, error) {
	if !s.TracingEnabled {
		return nil, nil
	}
	var logged logLimiter
	t, err := telemetry.NewTracing(ctx, telemetry.TracingConfig{
		Protocol: s.TracingProtocol, ServiceName: s.TracingName, ServiceNamespace: s.TracingNamespace,
		InstanceID: s.TracingInstanceID, SamplingRate: float64(s.TracingRate), Log: log,
		Failed: func(err error) {
			if logged.allow("") {
				log.Warn("OpenTelemetry reports an error; spans are lost if it is about the collector (logged once a minute)",
					"error", err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return &tracing{t}, nil
}

// close sends the spans that wait. It must run after the last request.
func (t *tracing) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), maxTraceFlush)
	defer cancel()
	_ = t.Close(ctx) // Failed has reported an error of the collector
}

// store returns a store that adds its time to the span of the request.
func (t *tracing) store(s ratelimit.Store) ratelimit.Store {
	if t == nil {
		return s
	}
	return telemetry.Timed(s)
}

// options returns the options of the gRPC server.
func (t *tracing) options() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(t.intercept)}
}

// spanNames are the names of spans, by the method or the path of a request. Other requests, such as health checks, have
// no span.
var spanNames = map[string]string{
	rls.Method: "ShouldRateLimit", "/json": "ShouldRateLimit", auth.Method: "Check", auth.HTTPPath: "Check",
}

func (t *tracing) intercept(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (
	resp any, err error,
) {
	name, traced := spanNames[info.FullMethod]
	if !traced {
		return handler(ctx, req)
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	ctx, span := t.Start(ctx, name, metadataCarrier(headers))
	defer span.End()
	resp, err = handler(ctx, req)
	code := status.Code(err)
	span.SetAttributes(attribute.String("rpc.system", "grpc"), attribute.Int("rpc.grpc.status_code", int(code)))
	if code != codes.OK {
		span.SetStatus(otelcodes.Error, code.String())
	}
	return resp, err
}

// handler starts the spans of requests over HTTP.
func (t *tracing) handler(next http.Handler) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if strings.HasPrefix(path, auth.HTTPPath+"/") {
			path = auth.HTTPPath
		}
		name, traced := spanNames[path]
		if !traced {
			next.ServeHTTP(w, r)
			return
		}
		ctx, span := t.Start(r.Context(), name, propagation.HeaderCarrier(r.Header))
		defer span.End()
		span.SetAttributes(attribute.String("network.protocol.name", "http"))
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// metadataCarrier reads the headers of a gRPC request.
type metadataCarrier metadata.MD

// Get implements propagation.TextMapCarrier.
func (c metadataCarrier) Get(key string) string { return strings.Join(metadata.MD(c).Get(key), ",") }

// Set implements propagation.TextMapCarrier.
func (c metadataCarrier) Set(key, value string) { metadata.MD(c).Set(key, value) }

// Keys implements propagation.TextMapCarrier.
func (c metadataCarrier) Keys() []string { return slices.Collect(maps.Keys(c)) }
