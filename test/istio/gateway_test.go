package istio

import (
	"net/http"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// The cluster names that Istio makes of Services.
const (
	grpcCluster        = "outbound|8081||extauthz.extauthz.svc.cluster.local"
	httpCluster        = "outbound|8080||extauthz.extauthz.svc.cluster.local"
	applicationCluster = "outbound|80||application.example.svc.cluster.local"
)

// TestGateway follows docs/istio.md with either provider.
func TestGateway(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"gateway", "gateway-http"} {
		t.Run(directory, func(t *testing.T) {
			t.Parallel()
			testGateway(t, directory)
		})
	}
}

func testGateway(t *testing.T, directory string) {
	m := load(t, "service", directory, "example")
	c := container(t.TempDir())
	c.mount(t, m, "extauthz-rules", "/srv/runtime_data/current/config")
	keys := c.addKeys(t,
		[]string{"alice", "--plan", "free"}, []string{"bob", "--plan", "pro"}, []string{"carol", "--limit", "2/minute"})
	service := c.serve(t, configMapOf(t, m, "extauthz-settings"))
	bootstrap, err := envoyOf(t, m, "gateway").Bootstrap(map[string]string{
		grpcCluster: service.grpc, httpCluster: service.http, applicationCluster: application(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := testenv.ValidateEnvoy(t, bootstrap); err != nil {
		t.Fatal(err)
	}
	envoy := testenv.Envoy(t, patient(t, bootstrap), nil)
	client := client{addr: envoy.Listener("0.0.0.0_8080"), host: "app.example.com"}
	alice, bob, carol := "x-api-key: "+keys["alice"], "x-api-key: "+keys["bob"], "x-api-key: "+keys["carol"]

	t.Run("nobody", func(t *testing.T) {
		a := client.want(t, http.StatusUnauthorized, "GET", "/")
		wantHeader(t, "the client", a.header, "Www-Authenticate", `ApiKey realm="application"`)
		wantHeader(t, "the client", a.header, "Content-Type", "application/problem+json")
		client.want(t, http.StatusForbidden, "GET", "/", "x-api-key: nonsense")
	})
	t.Run("somebody", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/", alice, "x-auth-owner: root", "x-auth-plan: root")
		wantHeader(t, "the application", a.saw, "X-Auth-Owner", "alice")
		wantHeader(t, "the application", a.saw, "X-Auth-Plan", "free")
		wantHeader(t, "the application", a.saw, "X-Auth-Method", "api_key")
		wantHeader(t, "the application", a.saw, "X-Api-Key")
		wantPolicies(t, a, "per-owner", "per-address")
	})
	t.Run("a path that nobody is asked about", func(t *testing.T) {
		a := client.want(t, http.StatusOK, "GET", "/healthz", "x-auth-owner: root", "x-auth-plan: root", "x-auth-method: root", "x-auth-key-id: root")
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
		for _, path := range []string{"/posts/1", "//posts", "/%70osts", "/x/../posts", "/posts%2F1"} { // as the application sees it
			wantTooMany(t, client.do(t, "POST", path, alice), "free-posts-per-user")
		}
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
	t.Run("extauthz is away", func(t *testing.T) {
		if n := envoy.Stat("cluster." + applicationCluster + ".ratelimit.error"); n != 0 {
			t.Errorf("ratelimit.error: got %d, want 0: as many requests passed unlimited", n)
		}
		if err := service.Terminate(); err != nil {
			t.Fatal(err)
		}
		client.want(t, http.StatusServiceUnavailable, "GET", "/", bob)
		client.want(t, http.StatusOK, "GET", "/healthz")
	})
}
