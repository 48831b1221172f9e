package e2e

import (
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestCalls counts the calls of Envoy to a service that fails. Envoy must not retry a call that was sent, because a
// second call might be charged a second time.
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
		for how, fail := range map[string]func(http.ResponseWriter){
			"an error that clients often retry": unavailable, "a reset": reset,
		} {
			service := newFailing(t, fail)
			envoy := startEnvoyWith(t, c.file,
				testenv.Ports{8000: testenv.Port(t, application(t)), c.port: testenv.Port(t, service.addr)}, c.edits...)
			c.send(t, envoy)
			if diff := cmp.Diff(c.want, service.counts()); diff != "" {
				t.Errorf("%s: calls to a service that answers with %s (-want +got)\n%s", c.file, how, diff)
			}
		}
	}
}

// unavailable answers UNAVAILABLE, or 503.
func unavailable(w http.ResponseWriter) {
	if w.Header().Get("Content-Type") == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	w.Header().Set("Grpc-Status", "14")
}

// reset resets the stream, or closes the connection of HTTP/1.1, as a service does that ends.
func reset(http.ResponseWriter) { panic(http.ErrAbortHandler) }

// failing is a service that fails each call.
type failing struct {
	addr string

	mu    sync.Mutex
	calls map[string]int // by path
}

func newFailing(t *testing.T, fail func(http.ResponseWriter)) *failing {
	t.Helper()
	f := &failing{calls: map[string]int{}}
	f.addr = testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			w.Header().Set("Content-Type", "application/grpc")
		}
		if strings.HasPrefix(r.URL.Path, "/grpc.health.v1.") {
			unavailable(w)
			return
		}
		f.count(r.URL.Path)
		fail(w)
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
