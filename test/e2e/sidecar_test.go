package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestSidecar asks over a Unix socket, and goes on when the service has been restarted and its socket is another.
func TestSidecar(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	// As the head of envoy/sidecar.yaml says: the sample rules as rules of one's own, and a key of one's own.
	keys := keysInFile(t)
	key := [2]string{"x-api-key", keys.create(t, "--owner", "alice", "--plan", "free", "--limit", "5/minute")}
	root, _ := rulesDirectory(t, testenv.RepoFile(t, sampleRules))
	environment := append(keys.environment, "RUNTIME_ROOT="+root, "GRPC_UDS="+socket)
	service := startService(t, environment...)
	envoy := startEnvoyWith(t, "envoy/sidecar.yaml", testenv.Ports{8000: testenv.Port(t, application(t))}, instead("path: /run/extauthz/grpc.sock", "path: "+socket))
	post := call{method: http.MethodPost, path: "/posts", header: [][2]string{key}}

	t.Run("either filter", func(t *testing.T) {
		a := envoy.do(t, post)
		if a.status != http.StatusOK {
			t.Fatalf("got %d %s, want 200", a.status, a.body)
		}
		wantList(t, a, "Ratelimit-Policy", `"per-owner";q=5;w=60`, `"posts-per-user";q=2;w=1`)
		envoy.neverFailed(t)
	})
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	t.Run("the service is away", func(t *testing.T) {
		if a := envoy.do(t, post); a.status != http.StatusServiceUnavailable || a.saw() != nil {
			t.Errorf("got %d, the application saw %v; want 503, nothing", a.status, a.saw())
		}
		if got := envoy.Stat("cluster.application.ext_authz.error"); got != 1 {
			t.Errorf("ext_authz.error: got %d, want 1", got)
		}
		if got := envoy.asked("error"); got != 0 {
			t.Errorf("ratelimit.error: got %d, want 0: ext_authz has answered before it is asked", got)
		}
	})
	startService(t, environment...)
	// The very next request gets an answer; with the memory of the service, the count begins anew.
	t.Run("it is back", func(t *testing.T) { envoy.limitsKey(t, key, "alice") })
}

// demo is the credential of the sample's key.
var demo = [2]string{"x-api-key", "demo"}

// limitsKey makes the requests that the head of each sample shows: without a key, with this key, which has a limit of 5 a minute, and
// with it too often.
func (p *proxy) limitsKey(t *testing.T, key [2]string, owner string) {
	t.Helper()
	a := p.do(t, get("/"))
	if a.status != http.StatusUnauthorized || a.saw() != nil {
		t.Errorf("nobody: got %d, the application saw %v; want 401, nothing", a.status, a.saw())
	}
	wantHeaders(t, "nobody", a.header, http.Header{"Www-Authenticate": {`ApiKey realm="sample"`}})
	for i := range 5 {
		a := p.do(t, get("/", key, [2]string{"x-auth-owner", "evil"}))
		if a.status != http.StatusOK {
			t.Fatalf("request %d with the key: got %d %s, want 200", i+1, a.status, a.body)
		}
		wantHeaders(t, "the client", a.header, http.Header{"Ratelimit-Policy": {`"per-owner";q=5;w=60`}})
		wantHeaders(t, "the application", a.saw(), http.Header{"X-Auth-Owner": {owner}, "X-Auth-Plan": {"free"}, "X-Api-Key": nil})
	}
	a = p.do(t, get("/", key))
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" || a.saw() != nil {
		t.Errorf("the sixth: got %d %v; want 429, retry-after and nothing at the application", a.status, a.header)
	}
	wantList(t, a, "Ratelimit", `"per-owner";r=0;`)
	wantProblem(t, a, http.StatusTooManyRequests)
}
