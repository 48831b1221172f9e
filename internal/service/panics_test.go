package service

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/grpcgo"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/testgrpc"
)

// TestPanics has checks that panic, over grpc-go and over HTTP. Such a request gets an error, the process goes on, and
// the log has one line for each place.
func TestPanics(t *testing.T) {
	t.Parallel()
	out, registry := new(testenv.Output), prometheus.NewRegistry()
	bugs := newPanics(slog.New(slog.NewTextHandler(out, nil)), registry)
	calls := telemetry.NewCalls(registry)
	requests := flow.New(flow.Config{
		Limiter: ratelimit.New(ratelimit.Config{}), Authorizer: brokenAuthorizer{}, Queue: flow.NewQueue(1), Calls: calls,
		HTTP: flow.HTTPConfig{
			NeedsAddress: func() bool { return false }, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler),
		},
		Panicked: bugs.caught,
	})
	conn := testgrpc.Serve(t, requestsOf(new(settings.Settings), bugs, calls, requests).transport().(grpcgo.Server).Server)
	for _, c := range []struct {
		host string
		want codes.Code
	}{
		{"good", codes.OK}, {"broken", codes.Internal}, {"broken", codes.Internal}, {"good", codes.OK},
	} {
		request := new(authv3.CheckRequest)
		if err := proto.Unmarshal(checkRequest(c.host), request); err != nil {
			t.Fatal(err)
		}
		_, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), request)
		if got := status.Code(err); got != c.want {
			t.Errorf("the host %s: got %v, want %v", c.host, got, c.want)
		}
	}
	pages := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug of a page") })
	for _, path := range []string{"/check/", "/page"} {
		answer := httptest.NewRecorder()
		request := httptest.NewRequest(http.MethodGet, path, nil)
		request.Host = "broken"
		bugs.handler("HTTP", requests.Checks(pages)).ServeHTTP(answer, request)
		if answer.Code != http.StatusInternalServerError {
			t.Errorf("%s over HTTP: got %d, want 500", path, answer.Code)
		}
	}
	metrics := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(metrics,
		httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if !strings.Contains(metrics.Body.String(), "extauthz_panics_total 4\n") {
		t.Errorf("want 4 panics, in\n%s", metrics.Body)
	}
	const places = 2
	if lines, stacks := strings.Count(out.String(), "level=ERROR"), strings.Count(out.String(),
		"brokenAuthorizer"); lines != places || stacks != places-1 {
		t.Errorf("want %d lines, each with its stack, in\n%s", places, out)
	}
}

// brokenAuthorizer panics for the host broken, and allows every other request.
type brokenAuthorizer struct{}

func (brokenAuthorizer) Begin(_ context.Context, r *authz.Request, p *authz.Pending) {
	if r.Host == "broken" {
		panic("a bug")
	}
	p.Decision.Verdict = authz.Allowed
}

func (a brokenAuthorizer) BeginNow(r *authz.Request, p *authz.Pending) bool {
	a.Begin(context.Background(), r, p)
	return true
}

func (brokenAuthorizer) Finish(*authz.Pending, *ratelimit.Result) {}
