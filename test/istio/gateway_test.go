package istio

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/istio/mesh"
	"github.com/extauthz/extauthz/test/testenv"
)

// The cluster names that Istio derives from Services.
const (
	grpcCluster        = "outbound|8081||extauthz.extauthz.svc.cluster.local"
	httpCluster        = "outbound|8080||extauthz.extauthz.svc.cluster.local"
	applicationCluster = "outbound|80||application.example.svc.cluster.local"
)

// TestGateway makes the requests of docs/istio.md, with each provider.
func TestGateway(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"gateway", "gateway-http"} {
		t.Run(directory, func(t *testing.T) {
			t.Parallel()
			testGateway(t, directory)
		})
	}
}

// behindGateway has the services behind a gateway.
type behindGateway struct {
	*testenv.RunningService
	application string
	keys        map[string]string // headers, by owner
}

// startBehindGateway starts the service with the settings and rules of a mesh, and keys of three owners.
func startBehindGateway(t *testing.T, m *mesh.Mesh) behindGateway {
	t.Helper()
	c := container(t.TempDir())
	c.mount(t, m, "extauthz-rules", "/srv/runtime_data/current/config")
	keys := c.addKeys(t,
		[]string{"alice", "--plan", "free"}, []string{"bob", "--plan", "pro"}, []string{"carol", "--limit", "2/minute"})
	service := c.serve(t, configMapOf(t, m, "extauthz-settings"))
	return behindGateway{RunningService: service, application: application(t), keys: keys}
}

// gateway runs an Envoy with the configuration that Istio makes for the gateway of a mesh.
func (b behindGateway) gateway(t *testing.T, m *mesh.Mesh) (*testenv.EnvoyProxy, client) {
	t.Helper()
	bootstrap, err := envoyOf(t, m, "gateway").Bootstrap(map[string]string{
		grpcCluster: testenv.Loopback(b.GRPCPort), httpCluster: testenv.Loopback(b.HTTPPort),
		applicationCluster: b.application,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.ValidateEnvoy(t, bootstrap); err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, patient(bootstrap), nil)
	return envoy, client{addr: envoy.Listener("0.0.0.0_8080"), host: "app.example.com"}
}

func testGateway(t *testing.T, directory string) {
	m := load(t, "service", directory, "example")
	behind := startBehindGateway(t, m)
	envoy, client := behind.gateway(t, m)
	alice, bob, carol := behind.keys["alice"], behind.keys["bob"], behind.keys["carol"]

	t.Run("invalid credentials", func(t *testing.T) {
		a := client.want(t, http.StatusUnauthorized, "GET", "/")
		wantHeader(t, "the client", a.header, "Www-Authenticate", `ApiKey realm="application"`)
		wantHeader(t, "the client", a.header, "Content-Type", "application/problem+json")
		client.want(t, http.StatusForbidden, "GET", "/", "x-api-key: nonsense")
	})
	t.Run("a valid key", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/", alice, "x-auth-owner: root", "x-auth-plan: root")
		wantHeader(t, "the application", a.saw, "X-Auth-Owner", "alice")
		wantHeader(t, "the application", a.saw, "X-Auth-Plan", "free")
		wantHeader(t, "the application", a.saw, "X-Auth-Method", "api_key")
		wantHeader(t, "the application", a.saw, "X-Api-Key")
		wantPolicies(t, a, "per-owner", "per-address")
	})
	t.Run("a path without ext_authz", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/healthz", "x-auth-owner: root", "x-auth-plan: root",
			"x-auth-method: root", "x-auth-key-id: root")
		for _, name := range []string{"X-Auth-Owner", "X-Auth-Plan", "X-Auth-Method", "X-Auth-Key-Id"} {
			wantHeader(t, "the application", a.saw, name)
		}
		for _, path := range []string{"/healthz/", "/healthzzz", "/healthz/../admin", "/x/healthz"} {
			client.want(t, http.StatusUnauthorized, "GET", path)
		}
	})
	t.Run("headers with underscores", func(t *testing.T) {
		client.want(t, http.StatusBadRequest, "GET", "/", alice, "x_auth_owner: root")
	})
	t.Run("the limit of a key", func(t *testing.T) {
		for range 2 {
			client.want(t, http.StatusOK, "GET", "/", carol)
		}
		wantTooMany(t, client.do(t, "GET", "/", carol), "per-owner")
	})
	t.Run("the limit of a route, by owner and plan", func(t *testing.T) {
		for range 3 {
			a := client.want(t, http.StatusOK, "POST", "/posts", alice)
			wantPolicies(t, a, "per-owner", "per-address", "posts-per-user", "free-posts-per-user")
		}
		wantTooMany(t, client.do(t, "POST", "/posts", alice), "free-posts-per-user")
		// Other spellings of the path, which the application reads as /posts.
		for _, path := range []string{"/posts/1", "//posts", "/%70osts", "/x/../posts", "/posts%2F1"} {
			wantTooMany(t, client.do(t, "POST", path, alice), "free-posts-per-user")
		}
		wantTooMany(t, client.do(t, "post", "/posts", alice), "free-posts-per-user")
		client.want(t, http.StatusOK, "GET", "/posts", alice)
		client.want(t, http.StatusOK, "POST", "/postscript", alice)
		for range 4 {
			client.want(t, http.StatusOK, "POST", "/posts", bob)
		}
	})
	t.Run("the limit of a route, for a gRPC client", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "POST", "/posts", alice, "content-type: application/grpc")
		wantHeader(t, "the client", a.header, "Grpc-Status", "8") // RESOURCE_EXHAUSTED
	})
	t.Run("extauthz has ended", func(t *testing.T) {
		for counter, called := range map[string]bool{"ok": true, "over_limit": true, "error": false} {
			if n := envoy.Stat("cluster." + applicationCluster + ";.ratelimit." + counter); (n > 0) != called {
				t.Errorf("ratelimit.%s: got %d, want more than 0: %v", counter, n, called)
			}
		}
		if err := behind.Terminate(); err != nil {
			t.Fatal(err)
		}
		client.want(t, http.StatusServiceUnavailable, "GET", "/", bob)
		client.want(t, http.StatusOK, "GET", "/healthz")
	})
}

// TestFilterOrder checks that docs/istio.md has the real order of the filters, and that requests from other origins
// (CORS) behave as it describes.
func TestFilterOrder(t *testing.T) {
	t.Parallel()
	const route = "    - name: posts\n"
	const cors = "      corsPolicy: { allowOrigins: [{ exact: https://page.example }], allowMethods: [POST] }\n"
	m, err := loadWith(t, "example/gateway.yaml", route, route+cors)
	if err != nil {
		t.Fatal(err)
	}
	wantOrderOnPage(t, m, "gateway", "0.0.0.0_8080")
	others, err := loadWith(t, "gateway/authorization-policy.yaml", "notPaths: [/healthz]",
		"notPaths: [/healthz]"+policiesOfIstio)
	if err != nil {
		t.Fatal(err)
	}
	wantOrderOnPage(t, others, "gateway", "0.0.0.0_8080")

	behind := startBehindGateway(t, m)
	_, client := behind.gateway(t, m)
	const allowed, origin = "Access-Control-Allow-Origin", "https://page.example"
	wantHeader(t, "a page", client.want(t, http.StatusUnauthorized, "POST", "/posts", "origin: "+origin).header, allowed)
	client.want(t, http.StatusUnauthorized, "OPTIONS", "/posts", "origin: "+origin, "access-control-request-method: POST")
	for range 3 {
		client.want(t, http.StatusOK, "POST", "/posts", "origin: "+origin, behind.keys["alice"])
	}
	a := client.do(t, "POST", "/posts", "origin: "+origin, behind.keys["alice"])
	wantTooMany(t, a, "free-posts-per-user")
	wantHeader(t, "a page", a.header, allowed, origin)
}

// policiesOfIstio are policies that a gateway may also have.
const policiesOfIstio = `
---
apiVersion: security.istio.io/v1
kind: RequestAuthentication
metadata:
  name: tokens
spec:
  selector: { matchLabels: { istio: ingressgateway } }
  jwtRules: [{ issuer: https://issuer.example, jwks: '{"keys": []}' }]
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: tokens
spec:
  selector: { matchLabels: { istio: ingressgateway } }
  action: DENY
  rules: [{ from: [{ source: { notRequestPrincipals: ["*"] } }] }]
`

// wantOrderOnPage checks that docs/istio.md has the order of the filters in a listener of this Envoy.
func wantOrderOnPage(t *testing.T, m *mesh.Mesh, name, listener string) {
	t.Helper()
	var order []string
	for _, name := range envoyOf(t, m, name).HTTPFilters(listener) {
		if short, ok := strings.CutPrefix(name, "envoy.filters.http."); ok {
			order = append(order, "`"+short+"`")
		}
	}
	page := testenv.RepoFile(t, "docs/istio.md")
	if want := strings.Join(order, ", "); !strings.Contains(page, want) {
		t.Errorf("the filters are %s; docs/istio.md has another order", want)
	}
}

// TestUnsentCalls checks that Istio passes on which calls may be retried, and when a replica is taken out.
func TestUnsentCalls(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"gateway", "gateway-http"} {
		bootstrap, err := envoyOf(t, load(t, "service", directory, "example"), "gateway").Bootstrap(map[string]string{
			grpcCluster: "127.0.0.1:1", httpCluster: "127.0.0.1:1", applicationCluster: "127.0.0.1:1",
		})
		if err != nil {
			t.Fatal(err)
		}
		for setting, want := range map[string]int{ // ext_authz and ratelimit; the clusters of gRPC, HTTP and the debug port
			`"retryOn": "connect-failure,refused-stream"`: 2, `"consecutiveLocalOriginFailure": 5`: 3,
		} {
			if n := strings.Count(bootstrap, setting); n != want {
				t.Errorf("%s: %s occurs %d times, want %d", directory, setting, n, want)
			}
		}
	}
}

// TestHTTPProvider replaces extauthz by a server that records the call of ext_authz over HTTP. The call has the real
// address of the client, even if the client sends that header, and only the listed headers of the client.
func TestHTTPProvider(t *testing.T) {
	t.Parallel()
	m := load(t, "service", "gateway-http", "example")
	calls := make(chan *http.Request, 1)
	provider := testenv.UpstreamFunc(t, func(_ http.ResponseWriter, r *http.Request) { calls <- r })
	bootstrap, err := envoyOf(t, m,
		"gateway").Bootstrap(map[string]string{httpCluster: provider, applicationCluster: application(t)})
	if err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, patient(bootstrap), nil)
	client := client{addr: envoy.Listener("0.0.0.0_8080"), host: "app.example.com"}
	client.want(t, http.StatusOK, "GET", "/a?b=c", "authorization: Bearer x", "x-envoy-source: 192.0.2.1",
		"x-mine: secret")
	r := <-calls
	if got, want := r.RequestURI, "/check/a?b=c"; got != want {
		t.Errorf("got a call of %s, want %s", got, want)
	}
	header := configMapOf(t, m, "extauthz-settings")["AUTHZ_HTTP_SOURCE_HEADER"]
	wantHeader(t, "extauthz", r.Header, header, "127.0.0.1")
	wantHeader(t, "extauthz", r.Header, "Authorization", "Bearer x")
	wantHeader(t, "extauthz", r.Header, "X-Mine")
}

// TestHosts uncomments the line of the policy that restricts it to some hosts. A host with a port must not bypass the
// policy.
func TestHosts(t *testing.T) {
	t.Parallel()
	const line = `hosts: [app.example.com, "app.example.com:*"]`
	for _, c := range []struct {
		name   string
		after  string
		status int // of a request with a port in the host, and without a credential
	}{
		{"the line", line, http.StatusUnauthorized},
		{"without the second name", "hosts: [app.example.com]", http.StatusOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := loadWith(t, "gateway/authorization-policy.yaml", "# "+line, c.after)
			if err != nil {
				t.Fatal(err)
			}
			_, client := startBehindGateway(t, m).gateway(t, m)
			client.want(t, http.StatusUnauthorized, "GET", "/")
			client.host = "APP.example.com"
			client.want(t, http.StatusUnauthorized, "GET", "/")
			client.host = "app.example.com:8080"
			client.want(t, c.status, "GET", "/")
		})
	}
}

// otherPolicy is another policy for the gateway, with an existing provider, and for other requests.
const otherPolicy = `
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: other
spec:
  selector:
    matchLabels:
      istio: ingressgateway
  action: CUSTOM
  provider:
    name: extauthz-http
  rules:
    - to:
        - operation:
            paths: [/other]
`

// TestSigns makes mistakes in the files and checks the response to a client with a valid key. docs/istio.md lists which
// mistake causes which response.
func TestSigns(t *testing.T) {
	t.Parallel()
	behind := startBehindGateway(t, load(t, "service", "gateway", "example"))
	for _, c := range []struct {
		name   string
		file   string
		texts  []string // pairs of old and new text
		status int
		body   string   // unless the application answers
		limits []string // in the response
	}{
		{"a provider that does not exist", "gateway/authorization-policy.yaml",
			[]string{"name: extauthz-grpc", "name: extauthz"},
			http.StatusForbidden, "RBAC: access denied", nil},
		{"a Service that does not exist", "mesh-config.yaml",
			[]string{"service: extauthz.extauthz.svc", "service: extauthz.default.svc"},
			http.StatusForbidden, "RBAC: access denied", nil},
		{"a policy of another provider", "gateway/authorization-policy.yaml",
			[]string{"notPaths: [/healthz]", "notPaths: [/healthz]" + otherPolicy},
			http.StatusForbidden, "RBAC: access denied", nil},
		{"a port that does not exist", "mesh-config.yaml", []string{"port: 8081", "port: 9001"},
			http.StatusServiceUnavailable, "", nil},
		{"the same without statusOnError", "mesh-config.yaml",
			[]string{"port: 8081", "port: 9001", `statusOnError: "503"`, ""},
			http.StatusForbidden, "", nil},
		{"a port without the name grpc", "../deploy/kustomize/base/services.yaml", []string{"name: grpc,", "name: rpc,"},
			http.StatusServiceUnavailable, "", nil},
		// Without an owner, all requests share one bucket of posts-per-user.
		{"a policy for no pod", "gateway/authorization-policy.yaml", []string{"istio: ingressgateway", "istio: ingress"},
			http.StatusOK, "", []string{"per-address", "posts-per-user"}},
		{"no mistake", "gateway/authorization-policy.yaml", []string{"name: extauthz-grpc", "name: extauthz-grpc"},
			http.StatusOK, "", []string{"free-posts-per-user", "per-address", "per-owner", "posts-per-user"}},
		{"a virtual host that does not exist", "gateway/rate-limits.yaml",
			[]string{"name: app.example.com:80", "name: app.example.com"},
			http.StatusOK, "", []string{"per-address", "per-owner"}},
		{"a cluster that does not exist", "gateway/rate-limits.yaml",
			[]string{"cluster_name: outbound|8081||", "cluster_name: outbound|8081|"},
			http.StatusOK, "", []string{"per-owner"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := loadWith(t, c.file, c.texts...)
			if err != nil {
				t.Fatal(err)
			}
			_, client := behind.gateway(t, m)
			a := client.want(t, c.status, "POST", "/posts", behind.keys["alice"])
			if a.saw == nil && a.body != c.body {
				t.Errorf("got the body %q, want %q", a.body, c.body)
			}
			if limits := limitsOf(a); !slices.Equal(limits, c.limits) {
				t.Errorf("the response names the limits %q, want %q", limits, c.limits)
			}
		})
	}
}

// limitsOf returns the names of the limits in a response, sorted.
func limitsOf(a answer) []string {
	var limits []string
	policies := strings.Join(a.header.Values("Ratelimit-Policy"), ",")
	for _, m := range regexp.MustCompile(`"([a-z-]+)";`).FindAllStringSubmatch(policies, -1) {
		limits = append(limits, m[1])
	}
	slices.Sort(limits)
	return limits
}
