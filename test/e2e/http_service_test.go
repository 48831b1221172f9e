package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// overHTTP replaces the ext_authz filter by that of envoy/http-ext_authz.yaml, which calls the service over HTTP at
// this port. The ratelimit filter remains.
func overHTTP(port string) edit {
	cluster := fmt.Sprintf(`
    - name: extauthz_http
      type: STATIC
      load_assignment:
        cluster_name: extauthz_http
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: %s } } }
`, port)
	return func(t *testing.T, config string) string {
		t.Helper()
		_, filter, _ := cutFilter(t, testenv.RepoFile(t, "envoy/http-ext_authz.yaml"), extAuthz)
		filter = instead("cluster: extauthz, timeout: 0.200s", "cluster: extauthz_http, timeout: "+longTimeout)(t, filter)
		before, _, after := cutFilter(t, config, extAuthz)
		config = before + filter + after
		for _, key := range []string{"owner", "plan"} { // over HTTP, metadata has the names of headers
			config = instead("path: [{ key: "+key+" }]", "path: [{ key: x-ext-authz-"+key+" }]")(t, config)
		}
		return instead("\n  clusters:\n", "\n  clusters:"+cluster)(t, config)
	}
}

// TestHTTPService checks the decisions of ext_authz over HTTP, within the limits of that protocol.
func TestHTTPService(t *testing.T) {
	t.Parallel()
	issuer := newIssuer(t)
	root, _ := rulesDirectory(t, policy(t, issuer))
	service := startService(t, "RUNTIME_ROOT="+root, serverSecret, "AUTHZ_HTTP_TIMEOUT="+longTimeout,
		"AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source")
	envoy := startEnvoy(t, service.grpcPort, overHTTP(service.http[strings.LastIndex(service.http, ":")+1:]))
	ann := issuer.bearer(t, claims{"plan": "trial"})

	for _, c := range []struct {
		name   string
		call   call
		status int
		header http.Header
		saw    http.Header
	}{
		{name: "a valid token", call: get("/a//b?c=d", ann, [2]string{"x-auth-key-id", "evil"}), status: 200,
			saw: http.Header{"X-Auth-Owner": {"ann"}, "X-Auth-Plan": {"trial"}, "X-Auth-Key-Id": {"first"},
				"Authorization": nil}},
		{name: "no credential", call: get("/"), status: 401,
			header: http.Header{"Www-Authenticate": {`Bearer realm="sample", ApiKey realm="sample"`}}},
		{name: "an invalid credential", call: get("/", [2]string{"authorization", "Bearer x"}), status: 401,
			header: http.Header{"Www-Authenticate": {`Bearer realm="sample", error="invalid_token", ApiKey realm="sample"`}}},
		{name: "an open path", call: get("/public/x", [2]string{"x-auth-owner", "evil"}), status: 200,
			saw: http.Header{"X-Auth-Owner": nil, "X-Auth-Method": {"anonymous"}}},
		{name: "a denied path", call: get("/internal/x", ann), status: 403},
		{name: "a domain that the client names", call: get("/", [2]string{"x-envoy-auth-context-extensions", "domain=other"}),
			status: 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := envoy.do(t, c.call)
			if a.status != c.status {
				t.Fatalf("got %d %s, want %d", a.status, a.body, c.status)
			}
			wantHeaders(t, "the client", a.header, c.header)
			wantHeaders(t, "the application", a.saw(), c.saw)
		})
	}
	t.Run("limits", func(t *testing.T) {
		few := get("/few/things", ann)
		for range 3 {
			if a := envoy.do(t, few); a.status != http.StatusOK || a.header.Get("Ratelimit-Policy") != `"few";q=3;w=3600` {
				t.Fatalf("got %d, ratelimit-policy: %s; want 200 and few", a.status, a.header.Get("Ratelimit-Policy"))
			}
		}
		a := envoy.do(t, few)
		if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.saw() != nil {
			t.Errorf("the fourth: got %d %v; want 429, retry-after and nothing at the application", a.status, a.header)
		}
		wantProblem(t, a, http.StatusTooManyRequests)
	})
	t.Run("metadata for the other filter", func(t *testing.T) {
		if allowed, _ := envoy.tally(t, 4,
			call{method: http.MethodPost, path: "/posts", header: [][2]string{ann}}); allowed != 2 {
			t.Errorf("posts on trial: got %d of 4 allowed, want 2", allowed)
		}
	})
	t.Run("gRPC", func(t *testing.T) {
		if got := envoy.invoke(t, "/echo.Echo/Say"); got.Code() != 16 {
			t.Errorf("without a credential: got %v, want UNAUTHENTICATED (16)", got)
		}
	})
}

// TestHTTPSample runs envoy/http-ext_authz.yaml unchanged, with the sample rules.
func TestHTTPSample(t *testing.T) {
	t.Parallel()
	service := startService(t, "AUTHZ_HTTP_TIMEOUT="+longTimeout, "AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source")
	envoy := startEnvoyWith(t, "envoy/http-ext_authz.yaml", testenv.Ports{
		8000: testenv.Port(t, application(t)), 8080: testenv.Port(t, strings.TrimPrefix(service.http, "http://")),
	})
	envoy.limitsKey(t, demo, "demo")
	if a := envoy.do(t, get("/", [2]string{"x_auth_owner", "evil"})); a.status != http.StatusBadRequest {
		t.Errorf("a header with an underscore: got %d, want 400", a.status)
	}
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	if a := envoy.do(t, get("/", demo)); a.status != http.StatusServiceUnavailable || a.saw() != nil {
		t.Errorf("the service has ended: got %d, the application received %v; want 503, nothing", a.status, a.saw())
	}
}
