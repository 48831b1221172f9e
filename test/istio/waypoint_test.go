package istio

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/istio/mesh"
	"github.com/extauthz/extauthz/test/testenv"
)

// waypointListener is the part of a waypoint for requests to the Service of the application.
const waypointListener = "inbound-vip|80|http|application.example.svc.cluster.local"

// behindWaypoint are the directories of a mesh in ambient mode.
func behindWaypoint() []string { return []string{"service", "example-waypoint"} }

// waypoint runs an Envoy with the configuration that Istio makes for the waypoint of a mesh.
func (b behindGateway) waypoint(t *testing.T, m *mesh.Mesh) client {
	t.Helper()
	bootstrap, err := envoyOf(t, m, "waypoint").Bootstrap(map[string]string{
		grpcCluster: testenv.Loopback(b.GRPCPort), waypointListener: b.application,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.ValidateEnvoy(t, bootstrap); err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, patient(bootstrap), nil)
	return client{addr: envoy.Listener(waypointListener), host: "application.example"}
}

// TestWaypoint sends requests to the Envoy of a waypoint, as they come out of a tunnel of ztunnel.
func TestWaypoint(t *testing.T) {
	t.Parallel()
	m := load(t, behindWaypoint()...)
	for _, err := range m.Check() {
		t.Error(err)
	}
	wantOrderOnPage(t, m, "waypoint", "main_internal")
	behind := startBehindGateway(t, m)
	client := behind.waypoint(t, m)
	alice, bob, carol := behind.keys["alice"], behind.keys["bob"], behind.keys["carol"]

	t.Run("invalid credentials", func(t *testing.T) {
		a := client.want(t, http.StatusUnauthorized, "GET", "/")
		wantHeader(t, "the client", a.header, "Www-Authenticate", `ApiKey realm="application"`)
		client.want(t, http.StatusForbidden, "GET", "/", "x-api-key: nonsense")
		client.want(t, http.StatusUnauthorized, "GET", "/healthz")
	})
	t.Run("a valid key", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/", alice, "x-auth-owner: root", "x.auth.plan: root")
		wantHeader(t, "the application", a.saw, "X-Auth-Owner", "alice")
		wantHeader(t, "the application", a.saw, "X-Auth-Plan", "free")
		wantHeader(t, "the application", a.saw, "X.auth.plan")
		wantHeader(t, "the application", a.saw, "X-Api-Key")
		wantPolicies(t, a, "per-owner")
		client.want(t, http.StatusBadRequest, "GET", "/", alice, "x_auth_owner: root")
	})
	t.Run("the limit of a key, which ext_authz counts", func(t *testing.T) {
		for range 2 {
			client.want(t, http.StatusOK, "GET", "/", carol)
		}
		wantTooMany(t, client.do(t, "GET", "/", carol), "per-owner")
	})
	t.Run("the limit of posts, which the rate limit filter counts", func(t *testing.T) {
		for range 3 {
			a := client.want(t, http.StatusOK, "POST", "/posts", alice)
			wantPolicies(t, a, "per-owner", "posts-per-user", "free-posts-per-user")
		}
		for _, path := range []string{"/posts/1", "/posts?draft", "//posts", "/%70osts", "/x/../posts", "/posts%2F1"} {
			wantTooMany(t, client.do(t, "POST", path, alice), "free-posts-per-user")
		}
		wantTooMany(t, client.do(t, "post", "/posts", alice), "free-posts-per-user")
		client.want(t, http.StatusOK, "POST", "/postscript", alice)
		for range 4 {
			client.want(t, http.StatusOK, "POST", "/posts", bob)
		}
	})
	t.Run("extauthz has ended", func(t *testing.T) {
		if err := behind.Terminate(); err != nil {
			t.Fatal(err)
		}
		client.want(t, http.StatusServiceUnavailable, "GET", "/", bob)
	})
}

// The targets of a policy or an EnvoyFilter.
const (
	ofGateway = `  targetRefs:
    - group: gateway.networking.k8s.io
      kind: Gateway
      name: waypoint
`
	ofService  = "  targetRefs: [{ group: \"\", kind: Service, name: application }]\n"
	ofSelector = "  selector: { matchLabels: { gateway.networking.k8s.io/gateway-name: waypoint } }\n"
	ofWorkload = "  workloadSelector: { labels: { gateway.networking.k8s.io/gateway-name: waypoint } }\n"
)

// meshRoute is a route for requests to the Service inside the mesh.
const meshRoute = `
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: inside
spec:
  hosts: [application.example.svc.cluster.local]
  http: [{ route: [{ destination: { host: application.example.svc.cluster.local } }] }]
`

// onVirtualHost is a patch of the virtual host of the Service.
const onVirtualHost = `
    - applyTo: VIRTUAL_HOST
      match: { context: SIDECAR_INBOUND, routeConfiguration: { vhost: { name: inbound|http|80 } } }
      patch: { operation: MERGE, value: { rate_limits: [{ actions: [{ remote_address: {} }] }] } }
`

// TestWaypointSigns makes mistakes in the files and checks the response to a client with a valid key, and what Check
// finds. docs/istio.md lists which mistake causes which response.
func TestWaypointSigns(t *testing.T) {
	t.Parallel()
	behind := startBehindGateway(t, load(t, behindWaypoint()...))
	all := []string{"free-posts-per-user", "per-owner", "posts-per-user"}
	for _, c := range []struct {
		name   string
		file   string
		texts  []string // pairs of old and new text
		status int      // 0: the waypoint does not get the request
		limits []string // in the response
		check  string   // part of the mistakes that Check finds
	}{
		{"no mistake", "waypoint/gateway.yaml", nil, http.StatusOK, all, ""},
		{"a policy for the Service", "waypoint/authorization-policy.yaml", []string{ofGateway, ofService},
			http.StatusOK, all, ""},
		{"a policy with a selector", "waypoint/authorization-policy.yaml", []string{ofGateway, ofSelector},
			http.StatusOK, []string{"posts-per-user"}, "AuthorizationPolicy example/extauthz: it matches nothing"},
		{"a policy for another Gateway", "waypoint/authorization-policy.yaml", []string{"name: waypoint", "name: way"},
			http.StatusOK, []string{"posts-per-user"}, "AuthorizationPolicy example/extauthz: it matches nothing"},
		{"a provider that does not exist", "waypoint/authorization-policy.yaml", []string{"extauthz-grpc", "extauthz"},
			http.StatusForbidden, nil, "meshConfig.extensionProviders has no such provider"},
		{"filters with a workloadSelector", "waypoint/rate-limits.yaml", []string{ofGateway, ofWorkload},
			http.StatusOK, []string{"per-owner"}, "configPatches[0] (HTTP_FILTER): it matches nothing"},
		{"filters for the Service", "waypoint/rate-limits.yaml", []string{ofGateway, ofService},
			http.StatusOK, []string{"per-owner"}, "configPatches[0] (HTTP_FILTER): it matches nothing"},
		{"filters of a gateway", "waypoint/rate-limits.yaml", []string{"context: SIDECAR_INBOUND", "context: GATEWAY"},
			http.StatusOK, []string{"per-owner"}, "configPatches[0] (HTTP_FILTER): it matches nothing"},
		{"a Service without a waypoint", "example-waypoint/kustomization.yaml",
			[]string{"istio.io/use-waypoint: waypoint", "a: b"}, 0, nil,
			"AuthorizationPolicy example/extauthz: it matches nothing"},
		{"a Service with another waypoint", "example-waypoint/kustomization.yaml",
			[]string{"istio.io/use-waypoint: waypoint", "istio.io/use-waypoint: other"}, 0, nil, "it matches nothing"},
		{"a waypoint for pods", "waypoint/gateway.yaml",
			[]string{"waypoint-for: service", "waypoint-for: workload"}, 0, nil, "it matches nothing"},
		{"a route inside the mesh", "example/application.yaml", []string{"name: http, port: 80, targetPort: http }",
			"name: http, port: 80, targetPort: http }" + meshRoute}, http.StatusOK, all, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, err := loadAllWith(t, behindWaypoint(), c.file, c.texts...)
			if err != nil {
				t.Fatal(err)
			}
			found := fmt.Sprint(errors.Join(m.Check()...))
			if (c.check == "") != (found == "<nil>") || !strings.Contains(found, c.check) {
				t.Errorf("Check: got %s, want %q in it", found, c.check)
			}
			if c.status == 0 {
				if order := envoyOf(t, m, "waypoint").HTTPFilters("main_internal"); len(order) > 0 {
					t.Errorf("the waypoint has the filters %v, want no filter chain for the Service", order)
				}
				return
			}
			a := behind.waypoint(t, m).want(t, c.status, "POST", "/posts", behind.keys["alice"])
			if got := limitsOf(a); !slices.Equal(got, c.limits) {
				t.Errorf("the response names the limits %q, want %q", got, c.limits)
			}
		})
	}
}

// TestWaypointTCP gives the port of the Service a name that is not HTTP. The policy then applies to connections, for
// which ext_authz sends no request and no credential.
func TestWaypointTCP(t *testing.T) {
	t.Parallel()
	m, err := loadAllWith(t, behindWaypoint(), "example/application.yaml", "name: http, port: 80", "name: tcp, port: 80")
	if err != nil {
		t.Fatal(err)
	}
	behind := startBehindGateway(t, m)
	listener := strings.Replace(waypointListener, "|http|", "|tcp|", 1)
	bootstrap, err := envoyOf(t, m, "waypoint").Bootstrap(map[string]string{
		grpcCluster: testenv.Loopback(behind.GRPCPort), listener: behind.application,
	})
	if err != nil {
		t.Fatal(err)
	}
	addr := testenv.Envoy(t, patient(bootstrap), nil).Listener(listener)
	req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+addr, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	name, key, _ := strings.Cut(behind.keys["alice"], ": ")
	req.Header.Set(name, key)
	if resp, err := http.DefaultTransport.RoundTrip(req); !errors.Is(err, io.EOF) {
		t.Errorf("got %v and the error %v, want a closed connection", resp, err)
	}
}

// TestWaypointVirtualHost checks that Istio ignores a patch of a waypoint's virtual host if the Service has a route.
// Therefore rate-limits.yaml has its descriptors in the filter.
func TestWaypointVirtualHost(t *testing.T) {
	t.Parallel()
	const end = "                      default_value: none\n                  - metadata: *user\n"
	for _, c := range []struct{ name, after, want string }{
		{"no route", onVirtualHost, "<nil>"},
		{"a route inside the mesh", onVirtualHost + meshRoute, "configPatches[1] (VIRTUAL_HOST): it matches nothing"},
	} {
		m, err := loadAllWith(t, behindWaypoint(), "waypoint/rate-limits.yaml", end, end+c.after)
		if err != nil {
			t.Fatal(err)
		}
		if found := fmt.Sprint(errors.Join(m.Check()...)); !strings.Contains(found, c.want) {
			t.Errorf("%s: got %s, want %s", c.name, found, c.want)
		}
	}
}

// TestWaypointTunnels checks that the rate limit filter is also in the listener for tunnels if the EnvoyFilter does not
// name the other one.
func TestWaypointTunnels(t *testing.T) {
	t.Parallel()
	for before, want := range map[string]bool{"": false, "          name: main_internal\n": true} {
		m, err := loadAllWith(t, behindWaypoint(), "waypoint/rate-limits.yaml", before, "")
		if err != nil {
			t.Fatal(err)
		}
		filters := envoyOf(t, m, "waypoint").HTTPFilters("connect_terminate")
		if got := slices.Contains(filters, "envoy.filters.http.ratelimit"); got != want {
			t.Errorf("without %q: the filters are %v, want the rate limit filter: %v", before, filters, want)
		}
	}
}
