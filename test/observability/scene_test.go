package observability

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// service is a running service with everything that has metrics: Redis over TLS with a client certificate, API keys
// in Redis, keys of an issuer, and rules.
type service struct {
	*testenv.RunningService
	redis *testenv.RedisServer
	rules string // the rule file
}

func startService(t *testing.T) *service {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	ca, port := testenv.NewAuthority(t), testenv.FreePort(t)
	ca.Write(t, file("ca.pem"))
	for _, name := range []string{"redis", "extauthz"} {
		testenv.WriteCertificate(t, ca.Issue(t, "spiffe://example.org/"+name, time.Hour), file(name+".pem"),
			file(name+".key"))
	}
	s := &service{
		redis: testenv.Redis(t, "--tls-port", strconv.Itoa(port),
			"--tls-cert-file", file("redis.pem"), "--tls-key-file", file("redis.key"), "--tls-ca-cert-file", file("ca.pem")),
		rules: file("config/rules.yaml"),
	}
	rules := replaced(t, testenv.RepoFile(t, "internal/service/sample/sample.yaml"),
		"    - api_key: { header: x-api-key }\n", fmt.Sprintf(`
    - jwt: { issuer: https://issuer.example, audiences: [shop], algorithms: [ES256], jwks_file: %q }
`, path(t, "test/observability/testdata/jwks.json")))
	if err := os.Mkdir(filepath.Dir(s.rules), 0o755); err != nil {
		t.Fatal(err)
	}
	s.write(t, rules)
	s.RunningService = testenv.Service(t, binary, "RUNTIME_ROOT="+dir,
		"REDIS_URL=rediss://"+testenv.Loopback(port), "REDIS_TLS_CACERT="+file("ca.pem"), "REDIS_TIMEOUT=10s",
		"REDIS_TLS_CLIENT_CERT="+file("extauthz.pem"), "REDIS_TLS_CLIENT_KEY="+file("extauthz.key"),
		"API_KEY_SECRET=a-server-secret-of-a-test")
	return s
}

func (s *service) write(t *testing.T, rules string) {
	t.Helper()
	if err := os.WriteFile(s.rules, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
}

// startEnvoy starts an Envoy with the sample configuration, which calls a service at this port. The timeouts are
// longer, for a busy machine.
func startEnvoy(t *testing.T, port int) *testenv.EnvoyProxy {
	t.Helper()
	config := replaced(t, testenv.RepoFile(t, "envoy/envoy.yaml"), "timeout: 0.020s", "timeout: 60s", "timeout: 0.200s",
		"timeout: 60s")
	return testenv.Envoy(t, config, testenv.Ports{10000: 0, 8000: testenv.Port(t, testenv.Upstream(t)), 8081: port})
}

// send sends a request without a credential to a route with ext_authz, and one to a route with ratelimit only.
func send(addr string) error {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		req, err := http.NewRequest(method, "http://"+addr+"/accounts", strings.NewReader(""))
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
	}
	return nil
}
