package envoygateway

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestTour runs what Envoy Gateway makes of the examples: a real Envoy, the service with the rules of the example and a key of
// alice, and an application.
func TestTour(t *testing.T) {
	for _, c := range []struct {
		policy string
		port   func(*testenv.RunningService) (inCluster, here int)
		// Over HTTP, requests that pass have no headers of their limits.
		limitHeaders bool
	}{
		{"extauthz.yaml", func(s *testenv.RunningService) (int, int) { return 8081, s.GRPCPort }, true},
		{"extauthz-http.yaml", func(s *testenv.RunningService) (int, int) { return 8080, s.HTTPPort }, false},
	} {
		t.Run(c.policy, func(t *testing.T) {
			t.Parallel()
			config := bootstrap(t, c.policy)
			if err := testenv.ValidateEnvoy(t, config); err != nil {
				t.Fatal(err)
			}
			service, key := startService(t)
			port, here := c.port(service)
			envoy := testenv.Envoy(t, config, testenv.Ports{
				10080: 0, // where Envoy Gateway lets a listener of port 80 listen
				19003: 0, // for the kubelet
				8000:  testenv.Port(t, application(t)),
				port:  here,
			})
			g := gateway{"http://" + envoy.Listener("demo/ingress/http")}
			t.Run("who", func(t *testing.T) { testWho(t, g, key) })
			t.Run("paths and headers", func(t *testing.T) { testNormalization(t, g, key) })
			t.Run("health", func(t *testing.T) { testHealth(t, g) })
			t.Run("how much", func(t *testing.T) { testHowMuch(t, g, key, c.limitHeaders) })
			t.Run("service away", func(t *testing.T) { testServiceAway(t, g, service, key) })
		})
	}
}

// bootstrap is the configuration of an Envoy of the example, with one of its policies.
func bootstrap(t *testing.T, policy string) string {
	t.Helper()
	discovered, err := translate(t, example(t, policy))
	if err != nil {
		t.Fatal(err)
	}
	config, err := discovered.Bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	// A test machine is not always as quick as the example is right to expect, and what is late is not decided.
	const quick, patient = `"timeout": "0.200s"`, `"timeout": "60s"`
	if n := strings.Count(config, quick); n != 1 {
		t.Fatalf("the configuration has %s %d times, want it once:\n%s", quick, n, config)
	}
	return strings.Replace(config, quick, patient, 1)
}

// startService starts the service with the rules of the example, and makes a key of alice on the plan free.
func startService(t *testing.T) (s *testenv.RunningService, key string) {
	t.Helper()
	dir := t.TempDir()
	binary, err := testenv.BuildService(dir)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"API_KEY_SECRET=of this test, and of no other", "API_KEYS_FILE=" + filepath.Join(dir, "keys.jsonl")}
	create := exec.Command(binary, "keys", "create", "--owner", "alice", "--plan", "free")
	create.Env = keys
	create.Stderr = os.Stderr
	out, err := create.Output()
	if err != nil {
		t.Fatalf("%s: %v", create, err)
	}
	rules := filepath.Join(testenv.RepoRoot(t), "envoy-gateway", "service")
	s = testenv.Service(t, binary, append(keys, "RUNTIME_ROOT="+rules, "RUNTIME_APPDIRECTORY=rules")...)
	return s, strings.TrimSpace(string(out))
}

// application starts what stands behind the gateway: it answers with the headers that it has been sent, as JSON.
func application(t *testing.T) (addr string) {
	return testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
}

// gateway is the Envoy that clients see.
type gateway struct{ url string }

// answer is what a client gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// get asks for a path, with these headers (name, value, name, value, ...).
func (g gateway) get(t *testing.T, path string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	resp, body := testenv.RoundTrip(t, http.DefaultTransport, req)
	return answer{resp.StatusCode, resp.Header, body}
}

// wants fails the test for another status.
func (a answer) wants(t *testing.T, status int, what string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: got %d %v %s, want %d", what, a.status, a.header, a.body, status)
	}
}

// saw are the headers that the application was sent.
func (a answer) saw(t *testing.T) http.Header {
	t.Helper()
	var header http.Header
	if err := json.Unmarshal([]byte(a.body), &header); err != nil {
		t.Fatalf("the application's answer %q: %v", a.body, err)
	}
	return header
}

// wantHeaders fails the test for headers with other values; "" is for one that is not there.
func wantHeaders(t *testing.T, what string, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if joined := strings.Join(got.Values(name), ", "); joined != value {
			t.Errorf("%s: %s is %q, want %q", what, name, joined, value)
		}
	}
}

func testWho(t *testing.T, g gateway, key string) {
	nobody := g.get(t, "/hello")
	nobody.wants(t, http.StatusUnauthorized, "nobody")
	wantHeaders(t, "nobody", nobody.header, map[string]string{"Www-Authenticate": `ApiKey realm="demo"`})
	g.get(t, "/hello", "x-api-key", "guessed").wants(t, http.StatusForbidden, "a guessed key")
	g.get(t, "/hello", "x-api-key", key, "x-api-key", "guessed").wants(t, http.StatusForbidden, "two keys")

	alice := g.get(t, "/hello", "x-api-key", key, "x-auth-owner", "root", "x-auth-plan", "root")
	alice.wants(t, http.StatusOK, "alice")
	wantHeaders(t, "what the application sees of alice", alice.saw(t), map[string]string{
		"X-Auth-Owner": "alice", "X-Auth-Plan": "free", "X-Auth-Method": "api_key", "X-Api-Key": "",
	})
}

// testNormalization holds what gateway.yaml says that Envoy Gateway does unasked.
func testNormalization(t *testing.T, g gateway, key string) {
	for _, path := range []string{"/healthz/../hello", "/healthz/", "//healthz/x"} {
		g.get(t, path).wants(t, http.StatusUnauthorized, path)
	}
	g.get(t, "/hello%2fthere").wants(t, http.StatusTemporaryRedirect, "an escaped slash")
	g.get(t, "/hello", "x-api-key", key, "x_auth_owner", "root").wants(t, http.StatusBadRequest, "a header with underscores")
}

func testHealth(t *testing.T, g gateway) {
	a := g.get(t, "/healthz", "x-auth-owner", "root", "x-auth-plan", "root", "x-auth-method", "root", "x-auth-key-id", "root",
		"x.auth.owner", "root")
	a.wants(t, http.StatusOK, "nobody asks for /healthz")
	wantHeaders(t, "what the application sees of /healthz", a.saw(t), map[string]string{
		"X-Auth-Owner": "", "X-Auth-Plan": "", "X-Auth-Method": "", "X-Auth-Key-Id": "", "X.auth.owner": "",
	})
}

// testHowMuch asks until alice's five requests of a minute are used up. A new one comes every 12 seconds, so that a slow machine
// may get one more.
func testHowMuch(t *testing.T, g gateway, key string, limitHeaders bool) {
	const policy = `"per-owner";q=5;w=60`
	for n := 1; ; n++ {
		a := g.get(t, "/hello", "x-api-key", key)
		if a.status == http.StatusTooManyRequests {
			wantHeaders(t, "the 429", a.header, map[string]string{"Ratelimit-Policy": policy})
			if a.header.Get("Retry-After") == "" || a.header.Get("Ratelimit") == "" {
				t.Errorf("the 429 has headers %v, want Retry-After and RateLimit among them", a.header)
			}
			return
		}
		a.wants(t, http.StatusOK, "a request within the limit")
		want := ""
		if limitHeaders {
			want = policy
		}
		wantHeaders(t, "a request within the limit", a.header, map[string]string{"Ratelimit-Policy": want})
		if n > 10 {
			t.Fatalf("%d requests of a key with 5 a minute have passed", n)
		}
	}
}

func testServiceAway(t *testing.T, g gateway, service *testenv.RunningService, key string) {
	if err := service.Terminate(); err != nil {
		t.Error(err)
	}
	g.get(t, "/hello", "x-api-key", key).wants(t, http.StatusServiceUnavailable, "when the service is away")
	g.get(t, "/healthz").wants(t, http.StatusOK, "/healthz when the service is away")
}
