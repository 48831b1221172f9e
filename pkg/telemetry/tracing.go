package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/contrib/propagators/b3"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TracingConfig are the settings of Tracing. The SDK of OpenTelemetry reads the others itself, from the variables
// OTEL_* of the process: the collector, headers, certificates, timeouts, attributes and sizes.
type TracingConfig struct {
	// Protocol is grpc or http.
	Protocol string
	// ServiceName, ServiceNamespace and InstanceID name this process in traces. Default of InstanceID: a random text.
	ServiceName, ServiceNamespace, InstanceID string
	// SamplingRate is the share of requests without a sampled parent that have a span.
	SamplingRate float64
	// Log receives mistakes in the variables OTEL_*, without their values. Required.
	Log *slog.Logger
	// Failed is called when spans could not be sent, for example. It must return at once. Required.
	Failed func(err error)
}

// Tracing sends a span of each request. Spans wait in a queue, or are dropped. It is safe for concurrent use.
type Tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	callers  propagation.TextMapPropagator
}

// NewTracing returns a Tracing. Call Close after the last request.
func NewTracing(ctx context.Context, cfg TracingConfig) (*Tracing, error) {
	// The SDK has one of each for the process.
	otel.SetLogger(logr.New(sdkLog{cfg.Log}))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(cfg.Failed))
	client := otlptracehttp.NewClient()
	if cfg.Protocol == "grpc" {
		client = otlptracegrpc.NewClient()
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("open the exporter of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(cfg.SamplingRate))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", cfg.ServiceName),
			attribute.String("service.namespace", cfg.ServiceNamespace),
			attribute.String("service.instance.id", cmp.Or(cfg.InstanceID, rand.Text())),
		)),
	)
	return &Tracing{
		provider: provider, tracer: provider.Tracer("github.com/extauthz/extauthz"),
		// Nothing is called on behalf of a request, so baggage would not be passed on.
		callers: propagation.NewCompositeTextMapPropagator(b3.New(), propagation.TraceContext{}),
	}, nil
}

// Close sends the spans that wait, until ctx is done.
func (t *Tracing) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Start begins the span of a request, a child of that in its W3C or B3 headers. A nil Tracing records nothing.
func (t *Tracing) Start(name string, headers Headers) Span {
	if t == nil {
		return Span{}
	}
	ctx := t.callers.Extract(context.Background(), carrier{headers})
	_, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
	return Span{span}
}

// Headers are the headers of a request. Get returns "" for a header that it does not have. The name is in lower case.
type Headers interface{ Get(name string) string }

// carrier reads headers (propagation.TextMapCarrier). Nothing is called for a request, and no propagator asks for Keys.
type carrier struct{ Headers }

func (carrier) Set(string, string) {}
func (carrier) Keys() []string     { return nil }

// TraceHeaders are the headers that Start reads.
func TraceHeaders() []string {
	return []string{"traceparent", "tracestate", "b3", "x-b3-traceid", "x-b3-spanid", "x-b3-parentspanid",
		"x-b3-sampled", "x-b3-flags"}
}

// Span is the span of a request. The zero value records nothing. One goroutine at a time may use it.
type Span struct{ span trace.Span }

// Recording reports whether the span is sent.
func (s Span) Recording() bool { return s.span != nil && s.span.IsRecording() }

// StoreTime adds how long the store has taken.
func (s Span) StoreTime(d time.Duration) {
	if s.Recording() {
		s.span.SetAttributes(attribute.Float64("extauthz.store_time", d.Seconds()))
	}
}

// RateLimit adds a decision of the rate limit service.
func (s Span) RateLimit(q *ratelimit.Query, res *ratelimit.Result) {
	if s.Recording() {
		d := rateLimitDecision(q, res)
		d.domain = strings.Clone(d.domain) // the span is sent later
		setAttributes(s.span, d.attrs(res))
	}
}

// Check adds a decision of ext_authz.
func (s Span) Check(c *authz.Checked) {
	if s.Recording() {
		d := checkDecision(c)
		setAttributes(s.span, append(d.attrs(c.Decision.Limits), checkAttrs(c)...))
	}
}

// EndGRPC ends the span of a call by gRPC.
func (s Span) EndGRPC(code codes.Code) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("rpc.system", "grpc"), attribute.Int("rpc.grpc.status_code", int(code)))
	if code != codes.OK {
		s.span.SetStatus(otelcodes.Error, code.String())
	}
	s.span.End()
}

// EndHTTP ends the span of a request over HTTP.
func (s Span) EndHTTP() {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("network.protocol.name", "http"))
	s.span.End()
}

// setAttributes gives a span the attributes of a log line, with the prefix extauthz.
func setAttributes(span trace.Span, attrs []slog.Attr) {
	for _, a := range attrs {
		key := attribute.Key("extauthz." + a.Key)
		switch a.Value.Kind() {
		case slog.KindInt64:
			span.SetAttributes(key.Int64(a.Value.Int64()))
		case slog.KindUint64:
			span.SetAttributes(key.Int64(int64(a.Value.Uint64()))) // a cost, which is far below 2^63
		case slog.KindDuration:
			span.SetAttributes(key.Float64(a.Value.Duration().Seconds()))
		default:
			span.SetAttributes(key.String(a.Value.String()))
		}
	}
}

// sdkLog is the logr.LogSink for what the SDK of OpenTelemetry logs about variables that it cannot read. It leaves out
// their values and the text of errors, which can have secrets: a header with a key, a URL with a password.
type sdkLog struct{ log *slog.Logger }

func (sdkLog) Init(logr.RuntimeInfo)                     {}
func (sdkLog) Enabled(int) bool                          { return true }
func (l sdkLog) WithValues(...any) logr.LogSink          { return l }
func (l sdkLog) WithName(string) logr.LogSink            { return l }
func (l sdkLog) Error(_ error, message string, _ ...any) { l.report(message) }

// Info logs a number that cannot be read, and nothing else.
func (l sdkLog) Info(_ int, message string, values ...any) {
	if len(values) == 0 {
		return
	}
	if name, ok := values[0].(string); ok && strings.HasPrefix(name, "OTEL_") {
		l.report(message, "variable", name)
	}
}

func (l sdkLog) report(problem string, more ...any) {
	l.log.Error("OpenTelemetry cannot use one of the variables OTEL_* and ignores it",
		append([]any{"problem", problem}, more...)...)
}
