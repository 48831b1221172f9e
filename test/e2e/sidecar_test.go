package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestSidecar has an Envoy that calls the service over a Unix socket, also after a restart of the service has
// replaced the socket.
func TestSidecar(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	// As the first lines of envoy/sidecar.yaml describe: a copy of the sample rules, and a new key.
	keys := keysInFile(t)
	key := [2]string{"x-api-key", keys.create(t, "--owner", "alice", "--plan", "free", "--limit", "5/minute")}
	root, _ := rulesDirectory(t, testenv.RepoFile(t, sampleRules))
	environment := append(keys.environment, "RUNTIME_ROOT="+root, "GRPC_UDS="+socket)
	service := startService(t, environment...)
	envoy := startEnvoyWith(t, "envoy/sidecar.yaml", testenv.Ports{8000: testenv.Port(t, application(t))},
		instead("path: /run/extauthz/grpc.sock", "path: "+socket))
	post := call{method: http.MethodPost, path: "/posts", header: [][2]string{key}}

	t.Run("either filter", func(t *testing.T) {
		a := envoy.do(t, post)
		if a.status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", a.status, a.body)
		}
		wantList(t, a, "Ratelimit-Policy", `"per-owner";q=5;w=60`, `"posts-per-user";q=2;w=1`)
		same := post
		same.method, same.grpc = "post", true // over HTTP/2
		wantList(t, envoy.do(t, same), "Ratelimit-Policy", `"per-owner";q=5;w=60`, `"posts-per-user";q=2;w=1`)
		envoy.checkNoFailures(t)
	})
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	t.Run("the service has ended", func(t *testing.T) {
		if a := envoy.do(t, post); a.status != http.StatusServiceUnavailable || a.saw() != nil {
			t.Errorf("got %d, the application received %v; want 503, nothing", a.status, a.saw())
		}
		if got := envoy.Stat("cluster.application.ext_authz.error"); got != 1 {
			t.Errorf("ext_authz.error: got %d, want 1", got)
		}
		if got := envoy.ratelimitStat("error"); got != 0 {
			t.Errorf("ratelimit.error: got %d, want 0, because ext_authz answers first", got)
		}
	})
	startService(t, environment...)
	// The next request gets an answer. The counts in memory are lost.
	t.Run("the service runs again", func(t *testing.T) { envoy.limitsKey(t, key, "alice") })
}

// demo is the credential of the sample's key.
var demo = [2]string{"x-api-key", "demo"}

// limitsKey makes the requests that the first lines of each sample show: one without a key, and six with this key,
// which has a limit of 5 a minute.
func (p *proxy) limitsKey(t *testing.T, key [2]string, owner string) {
	t.Helper()
	a := p.do(t, get("/"))
	if a.status != http.StatusUnauthorized || a.saw() != nil {
		t.Errorf("no credential: got %d, the application received %v; want 401, nothing", a.status, a.saw())
	}
	wantHeaders(t, "no credential", a.header, http.Header{"Www-Authenticate": {`ApiKey realm="sample"`}})
	for i := range 5 {
		a := p.do(t, get("/", key, [2]string{"x-auth-owner", "evil"}))
		if a.status != http.StatusOK {
			t.Fatalf("request %d with the key: got %d %s, want 200", i+1, a.status, a.body)
		}
		wantHeaders(t, "the client", a.header, http.Header{"Ratelimit-Policy": {`"per-owner";q=5;w=60`}})
		wantHeaders(t, "the application", a.saw(),
			http.Header{"X-Auth-Owner": {owner}, "X-Auth-Plan": {"free"}, "X-Api-Key": nil})
	}
	a = p.do(t, get("/", key))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.saw() != nil {
		t.Errorf("the sixth: got %d %v; want 429, retry-after and nothing at the application", a.status, a.header)
	}
	wantList(t, a, "Ratelimit", `"per-owner";r=0;`)
	wantProblem(t, a, http.StatusTooManyRequests)
}
