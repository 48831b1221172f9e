package e2e

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestCalls counts the calls of Envoy to a service that fails. Envoy must not retry, because a second call might be
// charged a second time.
func TestCalls(t *testing.T) {
	t.Parallel()
	const (
		check           = "/envoy.service.auth.v3.Authorization/Check"
		shouldRateLimit = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	)
	request := func(path string) func(*testing.T, *proxy) {
		return func(t *testing.T, envoy *proxy) { envoy.do(t, get(path)) }
	}
	overTCP := instead("pipe: { path: /run/extauthz/grpc.sock }",
		"socket_address: { address: 127.0.0.1, port_value: 8081 }")
	for _, c := range []struct {
		file  string
		port  int // of the service
		edits []edit
		send  func(*testing.T, *proxy)
		want  map[string]int
	}{
		{"envoy/envoy.yaml", 8081, nil, request("/"), map[string]int{check: 1}},
		{"envoy/envoy.yaml", 8081, nil, request("/healthz"), map[string]int{shouldRateLimit: 1}},
		{"envoy/sidecar.yaml", 8081, []edit{overTCP}, request("/posts"), map[string]int{check: 1}},
		{"envoy/http-ext_authz.yaml", 8080, nil, request("/posts"), map[string]int{"/check/posts": 1}},
		{"envoy/tcp.yaml", 8081, nil, func(t *testing.T, envoy *proxy) { envoy.talk(t, "127.0.0.1") },
			map[string]int{check: 1, shouldRateLimit: 1}},
	} {
		service := newFailing(t)
		envoy := startEnvoyWith(t, c.file,
			testenv.Ports{8000: testenv.Port(t, application(t)), c.port: testenv.Port(t, service.addr)}, c.edits...)
		c.send(t, envoy)
		if diff := cmp.Diff(c.want, service.counts()); diff != "" {
			t.Errorf("%s: calls (-want +got)\n%s", c.file, diff)
		}
	}
}

// failing is a service that answers every call with an error that clients often retry: UNAVAILABLE or 503.
type failing struct {
	addr string

	mu    sync.Mutex
	calls map[string]int // by path
}

func newFailing(t *testing.T) *failing {
	t.Helper()
	f := &failing{calls: map[string]int{}}
	f.addr = testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			f.count(r.URL.Path)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/grpc.health.v1.") {
			f.count(r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "14")
	})
	return f
}

func (f *failing) count(path string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls[path]++
}

// counts returns the number of calls by path.
func (f *failing) counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}
