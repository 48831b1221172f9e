package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/internal/testenv/testgrpc"
	"github.com/extauthz/extauthz/pkg/envoy/unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

func panicAt(here, where string) {
	if strings.Contains(where, here) {
		panic("a bug")
	}
}

// TestPanics checks that a request that panics gets an error, the process goes on, and the log has one line for each
// place.
func TestPanics(t *testing.T) {
	t.Parallel()
	out, registry := new(testenv.Output), prometheus.NewRegistry()
	bugs := newPanics(slog.New(slog.NewTextHandler(out, nil)), registry)
	server := newGRPCServer(&Settings{}, telemetry.NewCalls(registry), bugs)
	unary.Register(server, "/test/Ask", ask)
	conn := testgrpc.Serve(t, server)
	for _, c := range []struct {
		where string
		want  codes.Code
	}{
		{"nowhere", codes.OK}, {"decide", codes.Internal}, {"decide", codes.Internal}, {"nowhere", codes.OK},
	} {
		// Any message whose text is one of its bytes.
		req := &grpc_health_v1.HealthCheckRequest{Service: c.where}
		if got := status.Code(conn.Invoke(t.Context(), "/test/Ask", req,
			new(grpc_health_v1.HealthCheckResponse))); got != c.want {
			t.Errorf("a panic at %s: got %v, want %v", c.where, got, c.want)
		}
	}
	handler := bugs.handler("HTTP", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }))
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/check/", nil))
	if answer.Code != http.StatusInternalServerError {
		t.Errorf("over HTTP: got %d, want 500", answer.Code)
	}
	metrics := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(metrics,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(metrics.Body.String(), "extauthz_panics_total 3\n") {
		t.Errorf("want 3 panics, in\n%s", metrics.Body)
	}
	const places = 2
	if lines, stacks := strings.Count(out.String(), "level=ERROR"), strings.Count(out.String(),
		"panicAt"); lines != places || stacks != places-1 {
		t.Errorf("want %d lines, each with its stack, in\n%s", places, out)
	}
}

// ask panics if the message asks for it.
func ask(_ context.Context, request string, out []byte) ([]byte, error) {
	panicAt("decide", request)
	return append(out, request...), nil
}
