package envoygateway

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestTour runs an Envoy with the configuration that Envoy Gateway makes from the examples, the service with the
// rules of the example and a key of alice, and an application.
func TestTour(t *testing.T) {
	for _, c := range []struct {
		policy string
		port   func(*testenv.RunningService) (inCluster, here int)
		// Over HTTP, responses to allowed requests have no headers about limits.
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
			for _, setting := range []string{
				`"retryOn": "connect-failure,refused-stream"`, `"consecutiveLocalOriginFailure": 5`,
			} {
				if n := strings.Count(config, setting); n != 1 {
					t.Errorf("%s occurs %d times, want 1", setting, n)
				}
			}
			service, key := startService(t)
			port, here := c.port(service)
			envoy := testenv.Envoy(t, config, testenv.Ports{
				10080: 0, // Envoy Gateway adds 10000 to the port 80
				19003: 0, // for the kubelet
				8000:  testenv.Port(t, application(t)),
				port:  here,
			})
			g := gateway{"http://" + envoy.Listener("demo/ingress/http")}
			t.Run("credentials", func(t *testing.T) { testWho(t, g, key) })
			t.Run("paths and headers", func(t *testing.T) { testNormalization(t, g, key) })
			t.Run("health", func(t *testing.T) { testHealth(t, g) })
			t.Run("limits", func(t *testing.T) { testHowMuch(t, g, key, c.limitHeaders) })
			t.Run("service ended", func(t *testing.T) { testServiceAway(t, g, service, key) })
		})
	}
}

// bootstrap returns the configuration of an Envoy of the example, with one of its policies.
func bootstrap(t *testing.T, policy string) string {
	t.Helper()
	discovered, err := translate(t, example(t, policy))
	if err != nil {
		t.Fatal(err)
	}
	config, err := discovered.bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	// On a slow test machine, answers may take longer than the timeout of the example.
	const quick, patient = `"timeout": "0.200s"`, `"timeout": "60s"`
	if n := strings.Count(config, quick); n != 1 {
		t.Fatalf("the configuration has %s %d times, want it once:\n%s", quick, n, config)
	}
	return strings.Replace(config, quick, patient, 1)
}

// startService starts the service with the rules of the example, and creates a key of alice with the plan free.
func startService(t *testing.T) (s *testenv.RunningService, key string) {
	t.Helper()
	dir := t.TempDir()
	binary, err := testenv.Build(dir, "extauthz")
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{"API_KEY_SECRET=the server secret of this test", "API_KEYS_FILE=" + filepath.Join(dir, "keys.jsonl")}
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

// application starts the application behind the gateway. It answers with the headers of the request, as JSON.
func application(t *testing.T) (addr string) {
	return testenv.UpstreamFunc(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(r.Header)
	})
}

// gateway is the Envoy that clients see.
type gateway struct{ url string }

// answer is the response that a client receives.
type answer struct {
	status int
	header http.Header
	body   string
}

// get sends a GET request with these headers (name, value, name, value, ...).
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

// wants checks the status.
func (a answer) wants(t *testing.T, status int, what string) {
	t.Helper()
	if a.status != status {
		t.Errorf("%s: got %d %v %s, want %d", what, a.status, a.header, a.body, status)
	}
}

// saw returns the headers that the application received.
func (a answer) saw(t *testing.T) http.Header {
	t.Helper()
	var header http.Header
	if err := json.Unmarshal([]byte(a.body), &header); err != nil {
		t.Fatalf("the application's answer %q: %v", a.body, err)
	}
	return header
}

// wantHeaders checks the values of headers. The value "" means that a header must be absent.
func wantHeaders(t *testing.T, what string, got http.Header, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if joined := strings.Join(got.Values(name), ", "); joined != value {
			t.Errorf("%s: %s is %q, want %q", what, name, joined, value)
		}
	}
}

func testWho(t *testing.T, g gateway, key string) {
	refused := g.get(t, "/hello")
	refused.wants(t, http.StatusUnauthorized, "no key")
	wantHeaders(t, "no key", refused.header, map[string]string{"Www-Authenticate": `ApiKey realm="demo"`})
	g.get(t, "/hello", "x-api-key", "guessed").wants(t, http.StatusForbidden, "a guessed key")
	g.get(t, "/hello", "x-api-key", key, "x-api-key", "guessed").wants(t, http.StatusForbidden, "two keys")

	alice := g.get(t, "/hello", "x-api-key", key, "x-auth-owner", "root", "x-auth-plan", "root")
	alice.wants(t, http.StatusOK, "alice")
	wantHeaders(t, "the application", alice.saw(t), map[string]string{
		"X-Auth-Owner": "alice", "X-Auth-Plan": "free", "X-Auth-Method": "api_key", "X-Api-Key": "",
	})
}

// testNormalization checks the defaults of Envoy Gateway that gateway.yaml describes.
func testNormalization(t *testing.T, g gateway, key string) {
	for _, path := range []string{"/healthz/../hello", "/healthz/", "//healthz/x"} {
		g.get(t, path).wants(t, http.StatusUnauthorized, path)
	}
	g.get(t, "/hello%2fthere").wants(t, http.StatusTemporaryRedirect, "an escaped slash")
	g.get(t, "/hello", "x-api-key", key, "x_auth_owner", "root").wants(t, http.StatusBadRequest,
		"a header with underscores")
}

func testHealth(t *testing.T, g gateway) {
	a := g.get(t, "/healthz", "x-auth-owner", "root", "x-auth-plan", "root", "x-auth-method", "root", "x-auth-key-id",
		"root",
		"x.auth.owner", "root")
	a.wants(t, http.StatusOK, "/healthz without a key")
	wantHeaders(t, "the application", a.saw(t), map[string]string{
		"X-Auth-Owner": "", "X-Auth-Plan": "", "X-Auth-Method": "", "X-Auth-Key-Id": "", "X.auth.owner": "",
	})
}

// testHowMuch sends requests until alice's limit of 5 a minute is used up. A new unit is available every 12 seconds,
// so a slow machine may send one more.
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
			t.Fatalf("%d requests with a limit of 5 a minute were allowed", n)
		}
	}
}

func testServiceAway(t *testing.T, g gateway, service *testenv.RunningService, key string) {
	if err := service.Terminate(); err != nil {
		t.Error(err)
	}
	g.get(t, "/hello", "x-api-key", key).wants(t, http.StatusServiceUnavailable, "after the service has ended")
	g.get(t, "/healthz").wants(t, http.StatusOK, "/healthz after the service has ended")
}
