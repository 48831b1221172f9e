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

// TestCalls counts what a service that is not well gets to hear: each question once. A second call might be charged a second time.
func TestCalls(t *testing.T) {
	t.Parallel()
	const check, shouldRateLimit = "/envoy.service.auth.v3.Authorization/Check", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	request := func(path string) func(*testing.T, *proxy) {
		return func(t *testing.T, envoy *proxy) { envoy.do(t, get(path)) }
	}
	overTCP := instead("pipe: { path: /run/extauthz/grpc.sock }", "socket_address: { address: 127.0.0.1, port_value: 8081 }")
	for _, c := range []struct {
		file  string
		port  int // of the service
		edits []edit
		ask   func(*testing.T, *proxy)
		want  map[string]int
	}{
		{"envoy/envoy.yaml", 8081, nil, request("/"), map[string]int{check: 1}},
		{"envoy/envoy.yaml", 8081, nil, request("/healthz"), map[string]int{shouldRateLimit: 1}},
		{"envoy/sidecar.yaml", 8081, []edit{overTCP}, request("/posts"), map[string]int{check: 1}},
		{"envoy/http-ext_authz.yaml", 8080, nil, request("/posts"), map[string]int{"/check/posts": 1}},
		{"envoy/tcp.yaml", 8081, nil, func(t *testing.T, envoy *proxy) { envoy.talk(t, "127.0.0.1") }, map[string]int{check: 1, shouldRateLimit: 1}},
	} {
		service := newUnwell(t)
		envoy := startEnvoyWith(t, c.file, testenv.Ports{8000: testenv.Port(t, application(t)), c.port: testenv.Port(t, service.addr)}, c.edits...)
		c.ask(t, envoy)
		if diff := cmp.Diff(c.want, service.asked()); diff != "" {
			t.Errorf("%s: calls (-want +got)\n%s", c.file, diff)
		}
	}
}

// unwell is a service that answers every question with an error, of the kind that clients like to try again: UNAVAILABLE, 503.
type unwell struct {
	addr string

	mu    sync.Mutex
	calls map[string]int // by path
}

func newUnwell(t *testing.T) *unwell {
	t.Helper()
	u := &unwell{calls: map[string]int{}}
	u.addr = testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			u.count(r.URL.Path)
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/grpc.health.v1.") {
			u.count(r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "14")
	})
	return u
}

func (u *unwell) count(path string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.calls[path]++
}

// asked is how often which question has been asked.
func (u *unwell) asked() map[string]int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return maps.Clone(u.calls)
}
