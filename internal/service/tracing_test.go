package service

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// tracedRules have a rule of the rate limit service, and one of ext_authz.
const tracedRules = `
domain: shop
descriptors:
  - {key: database, rate_limit: {name: queries, unit: hour, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 100}}
authz:
  anonymous: allow
  limits:
    - actions: [{request_headers: {header: x-any, key: path}}]
`

// The caller's span of each request, in the forms of W3C and B3.
const (
	callerTrace = "0af7651916cd43dd8448eb211c80319c"
	callerSpan  = "b7ad6b7169203331"
	w3cSampled  = "00-" + callerTrace + "-" + callerSpan + "-01"
	w3cDropped  = "00-" + callerTrace + "-" + callerSpan + "-00"
	b3Sampled   = callerTrace + "-" + callerSpan + "-1"
)

// TestTraces sends a request to each service over each protocol, and compares the spans that a collector has received
// when the service has ended. So the end of the service sends the spans that wait.
func TestTraces(t *testing.T) {
	for _, protocol := range []string{"http", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector(t, protocol)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.url)
			t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=shop")
			t.Setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
			t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
			t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "3600000")
			t.Run("requests", func(t *testing.T) {
				grpcAddr, httpAddr, _, _ := start(t, configured(func(s *settings.Settings) {
					s.Rules.Root = tracedRoot(t)
					s.Telemetry.LogLevel = settings.LogLevel(slog.LevelWarn)
					s.Telemetry.Tracing = true
					s.Telemetry.TracingProtocol = protocol
					s.Telemetry.TracingNamespace = "test"
				}))
				sendTraced(t, grpcAddr, httpAddr)
			})
			c.expect(t, tracedWant)
			if got := c.resource(); !strings.Contains(got, "service.name=RateLimit service.namespace=test") ||
				!strings.Contains(got, "service.instance.id=") || !strings.Contains(got, "deployment.environment.name=test") {
				t.Errorf("the resource is %s", got)
			}
			if c.tenant != "shop" {
				t.Errorf("the header of the exporter is %q, want shop", c.tenant)
			}
		})
	}
}

// tracedWant are the spans of sendTraced, in the order of their names.
var tracedWant = []string{
	"Check child authz allowed anonymous path at=5 store grpc=0",
	"Check child authz allowed anonymous path at=5 store grpc=-",
	"ShouldRateLimit child ratelimit allowed allowed database at=4 store grpc=0",
	"ShouldRateLimit child ratelimit refused over_limit database at=4 store grpc=0",
	"ShouldRateLimit root ratelimit refused over_limit database at=4 store grpc=-",
	"ShouldRateLimit root ratelimit undecided undecided - at=- - grpc=3",
}

// TestTracingSamples: the caller decides whether its request is sampled, TRACING_SAMPLING_RATE decides for others.
func TestTracingSamples(t *testing.T) {
	for _, s := range []struct {
		rate float64
		want int // of a request without a parent, one with a sampled parent, and one with a parent that is not
	}{{0, 1}, {1, 2}} {
		t.Run(fmt.Sprint(s.rate), func(t *testing.T) {
			c, rate := newCollector(t, "http"), s.rate
			t.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", c.url+"/v1/traces")
			t.Run("requests", func(t *testing.T) {
				grpcAddr, _, _, _ := start(t, configured(func(s *settings.Settings) {
					s.Rules.Root = tracedRoot(t)
					s.Telemetry.Tracing = true
					s.Telemetry.TracingRate = rate
				}))
				conn := dial(t, grpcAddr)
				for _, parent := range []string{"", w3cSampled, w3cDropped} {
					ctx := t.Context()
					if parent != "" {
						ctx = metadata.AppendToOutgoingContext(ctx, "traceparent", parent)
					}
					limit(ctx, t, conn, "database")
				}
			})
			if got := len(c.spans()); got != s.want {
				t.Errorf("%d spans, want %d", got, s.want)
			}
		})
	}
}

// TestCollectorDown: without a collector, requests are answered as always, and the log has one line about it. The
// service still ends in time.
func TestCollectorDown(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+testenv.Loopback(testenv.FreePort(t)))
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "10")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "5")
	grpcAddr, _, _, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = tracedRoot(t)
		s.Telemetry.LogLevel = settings.LogLevel(slog.LevelWarn)
		s.Telemetry.Tracing = true
	}))
	conn := dial(t, grpcAddr)
	lost := func() int { return strings.Count(out.String(), "OpenTelemetry reports an error") }
	testenv.Eventually(t, func() error {
		for range 100 {
			limit(t.Context(), t, conn, "database")
		}
		if lost() == 0 {
			return fmt.Errorf("the log is silent about the collector")
		}
		return nil
	}, "a line about the collector")
	for range 100 {
		limit(t.Context(), t, conn, "database")
	}
	if n := lost(); n != 1 {
		t.Errorf("%d lines about the collector, want 1:\n%s", n, out)
	}
}

// TestBrokenTracing: the log names variables that the SDK cannot read, but not their values, which can be secrets.
func TestBrokenTracing(t *testing.T) {
	const secret = "s3cret"
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:" + secret + "@host:port", "OTEL_EXPORTER_OTLP_TIMEOUT": secret,
		"OTEL_EXPORTER_OTLP_HEADERS": secret, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "authorization=%" + secret,
		"OTEL_BSP_SCHEDULE_DELAY": secret,
	} {
		t.Setenv(name, value)
	}
	for _, protocol := range []string{"http", "grpc"} {
		_, _, _, out := start(t, configured(func(s *settings.Settings) {
			s.Rules.Root = tracedRoot(t)
			s.Telemetry.Tracing = true
			s.Telemetry.TracingProtocol = protocol
			s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
		}))
		got := out.String()
		for _, want := range []string{"parse url", "parse duration", "parse headers", "escape header value",
			"variable=OTEL_BSP_SCHEDULE_DELAY"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
		if strings.Contains(got, secret) {
			t.Errorf("a value is in the log:\n%s", got)
		}
	}
}

func tracedRoot(t *testing.T) string {
	t.Helper()
	root := testenv.RulesRoot(t)
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(tracedRules), 0o600); err != nil {
		t.Fatal(err)
	}
	return root
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// limit sends a descriptor with a value of a client.
func limit(ctx context.Context, t *testing.T, conn *grpc.ClientConn, keys ...string) {
	t.Helper()
	m := &rlsv3.RateLimitRequest{Domain: "shop"}
	for _, key := range keys {
		m.Descriptors = append(m.Descriptors, &ratelimitcommon.RateLimitDescriptor{
			Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: key, Value: chosen}},
		})
	}
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, m); (err != nil) != (keys == nil) {
		t.Fatal(err)
	}
}

// sendTraced sends requests with a W3C parent, a B3 parent and without, and one that has no span.
func sendTraced(t *testing.T, grpcAddr, httpAddr string) {
	t.Helper()
	conn := dial(t, grpcAddr)
	w3c := metadata.AppendToOutgoingContext(t.Context(), "traceparent", w3cSampled, "x-any", chosen)
	limit(w3c, t, conn, "database")
	limit(metadata.AppendToOutgoingContext(t.Context(), "b3", b3Sampled), t, conn, "database")
	limit(t.Context(), t, conn)
	if _, err := grpc_health_v1.NewHealthClient(conn).Check(w3c, new(grpc_health_v1.HealthCheckRequest)); err != nil {
		t.Fatal(err)
	}
	if _, err := authv3.NewAuthorizationClient(conn).Check(w3c, &authv3.CheckRequest{
		Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
			Http: &authv3.AttributeContext_HttpRequest{
				Method: "GET", Host: "shop.example", Path: "/" + chosen, Headers: map[string]string{"x-any": chosen},
			},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct{ method, path, body, parent string }{
		{http.MethodPost, "/json",
			`{"domain":"shop","descriptors":[{"entries":[{"key":"database","value":"` + chosen + `"}]}]}`, ""},
		{http.MethodGet, "/check/" + chosen, "", w3cSampled},
		{http.MethodGet, "/healthcheck", "", w3cSampled},
	} {
		req, err := http.NewRequestWithContext(t.Context(), r.method, "http://"+httpAddr+r.path, strings.NewReader(r.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("x-any", chosen)
		if r.parent != "" {
			req.Header.Set("traceparent", r.parent)
		}
		answer(t, req)
	}
}

// traceCollector receives traces as a collector of OpenTelemetry does (OTLP).
type traceCollector struct {
	collector.UnimplementedTraceServiceServer
	url string

	mu       sync.Mutex
	requests []*collector.ExportTraceServiceRequest
	tenant   string // the header x-tenant
}

func newCollector(t *testing.T, protocol string) *traceCollector {
	t.Helper()
	c := new(traceCollector)
	if protocol == "http" {
		server := httptest.NewServer(c)
		t.Cleanup(server.Close)
		c.url = server.URL
		return c
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	go func() { _ = server.Serve(listener) }() // ends with Stop
	t.Cleanup(server.Stop)
	c.url = "http://" + listener.Addr().String()
	return c
}

// Export receives spans over gRPC.
func (c *traceCollector) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (
	*collector.ExportTraceServiceResponse, error,
) {
	headers, _ := metadata.FromIncomingContext(ctx)
	c.receive(r, strings.Join(headers.Get("x-tenant"), ","))
	return new(collector.ExportTraceServiceResponse), nil
}

// ServeHTTP receives spans over HTTP.
func (c *traceCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("content-encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	content, err := io.ReadAll(body)
	m := new(collector.ExportTraceServiceRequest)
	if err == nil {
		err = proto.Unmarshal(content, m)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint("no spans at ", r.URL.Path, ": ", err), http.StatusBadRequest)
		return
	}
	c.receive(m, r.Header.Get("x-tenant"))
}

func (c *traceCollector) receive(r *collector.ExportTraceServiceRequest, tenant string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests, c.tenant = append(c.requests, r), tenant
}

// spans returns the spans that were received.
func (c *traceCollector) spans() (all []*tracev1.Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		for _, resource := range r.GetResourceSpans() {
			for _, scope := range resource.GetScopeSpans() {
				all = append(all, scope.GetSpans()...)
			}
		}
	}
	return all
}

// resource returns the attributes of the process.
func (c *traceCollector) resource() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var words []string
	for _, a := range c.requests[0].GetResourceSpans()[0].GetResource().GetAttributes() {
		words = append(words, a.GetKey()+"="+a.GetValue().GetStringValue())
	}
	slices.Sort(words)
	return strings.Join(words, " ")
}

// expect compares the spans with those that are wanted. No span may have a value of a client.
func (c *traceCollector) expect(t *testing.T, want []string) {
	t.Helper()
	var got []string
	for _, span := range c.spans() {
		got = append(got, describeSpan(span))
		if raw, err := proto.Marshal(span); err != nil || bytes.Contains(raw, []byte(chosen)) {
			t.Errorf("a span has a value of a client: %v", span)
		}
		if span.GetEndTimeUnixNano()-span.GetStartTimeUnixNano() > uint64(time.Minute) {
			t.Errorf("a span of a minute: %v", span)
		}
	}
	slices.Sort(got)
	want = slices.Sorted(slices.Values(want))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans, want (-) and got (+):\n%s", diff)
	}
}

// describeSpan returns name, parent, service, verdict, reason, rule with its line, source of the decision and code.
func describeSpan(span *tracev1.Span) string {
	values := map[string]string{}
	for _, a := range span.GetAttributes() {
		values[a.GetKey()] = a.GetValue().GetStringValue()
		if n, ok := a.GetValue().GetValue().(*commonv1.AnyValue_IntValue); ok {
			values[a.GetKey()] = fmt.Sprint(n.IntValue)
		}
	}
	value := func(key string) string {
		if v, ok := values[key]; ok {
			return v
		}
		return "-"
	}
	parent := "root"
	if hex.EncodeToString(span.GetTraceId()) == callerTrace && hex.EncodeToString(span.GetParentSpanId()) == callerSpan {
		parent = "child"
	}
	_, line, known := strings.Cut(values["extauthz.at"], ":")
	if !known {
		line = "-"
	}
	if _, timed := values["extauthz.store_time"]; timed != known {
		parent += " without the time of the store"
	}
	return fmt.Sprintf("%s %s %s %s %s %s at=%s %s grpc=%s", span.GetName(), parent, value("extauthz.service"),
		value("extauthz.verdict"), value("extauthz.reason"), value("extauthz.rule"), line, value("extauthz.decided_by"),
		value("rpc.grpc.status_code"))
}
