package e2e

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/test/testenv"
)

// These tests cover the rows of the table of failures in docs/operations.md that no other test covers. In
// TestRedisAway, TestAuthzRedisAway and TestKeysWhileRedisIsAway, Redis is unavailable. In TestServiceAway, the
// service is unavailable. In TestReload and TestPolicyReload, a file has a mistake.

// failureRules limit by path the requests of ext_authz, and by device the requests of ratelimit on the route /rewards.
const failureRules = `
domain: sample
authz:
  credentials: [{ api_key: { header: x-api-key } }]
  anonymous: allow
  access: [{ path: { prefix: /local } }, { path: { prefix: /deny } }, { path: { prefix: /allow } }]
  limits: [{ actions: [{ path: }] }]
descriptors:
  - { key: path, value: /local/*, rate_limit: &limit { unit: hour, requests_per_unit: 3 } }
  - { key: path, value: /deny/*, rate_limit: { <<: *limit, on_store_error: deny } }
  - { key: path, value: /allow/*, rate_limit: { <<: *limit, on_store_error: allow } }
  - key: action
    value: claim_reward
    descriptors:
      - { key: device, value: local, rate_limit: *limit }
      - { key: device, value: deny, rate_limit: { <<: *limit, on_store_error: deny } }
      - { key: device, value: allow, rate_limit: { <<: *limit, on_store_error: allow } }
`

const ratelimitFilter = "envoy.filters.http.ratelimit"

// startFailing starts the service with failureRules, and one Envoy for each of the two filters.
func startFailing(t *testing.T, environment ...string) (s *service, authz, limits *proxy) {
	t.Helper()
	s = startWithFailureRules(t, environment...)
	return s, startEnvoy(t, s.grpcPort, without(ratelimitFilter)), startEnvoy(t, s.grpcPort, without(extAuthz))
}

func startWithFailureRules(t *testing.T, environment ...string) *service {
	t.Helper()
	root, _ := rulesDirectory(t, failureRules)
	return startService(t, append([]string{"RUNTIME_ROOT=" + root, serverSecret}, environment...)...)
}

// TestStoreErrorPolicies checks on_store_error of each rule while Redis is unavailable.
func TestStoreErrorPolicies(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	service, authz, limits := startFailing(t, "REDIS_URL=redis://"+server.Addr, "REDIS_TIMEOUT="+longTimeout)
	if a := authz.do(t, get("/deny")); a.status != http.StatusOK {
		t.Fatalf("before: got %d %s, want 200", a.status, a.body)
	}

	server.Kill()
	if allowed, denied := authz.tally(t, 5, get("/local")); allowed != 3 {
		t.Errorf("ext_authz, local: got %d allowed and %d denied; want 3 and 2", allowed, denied)
	}
	if allowed, denied := limits.tally(t, 5, claim("local")); allowed != 3 {
		t.Errorf("ratelimit, local: got %d allowed and %d denied; want 3 and 2", allowed, denied)
	}
	if allowed, _ := authz.tally(t, 5, get("/allow")); allowed != 5 {
		t.Errorf("ext_authz, allow: got %d of 5 allowed", allowed)
	}
	if allowed, _ := limits.tally(t, 5, claim("allow")); allowed != 5 {
		t.Errorf("ratelimit, allow: got %d of 5 allowed", allowed)
	}
	if a := authz.do(t, get("/deny")); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("ext_authz, deny: got %d %v; want 503 and retry-after", a.status, a.header)
	}
	if a := limits.do(t, claim("deny")); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf("ratelimit, deny: got %d %v %s; want 429 and retry-after", a.status, a.header, a.body)
	}
	ofGRPC := func(c call) call { c.method, c.grpc = http.MethodPost, true; return c }
	if a := authz.do(t, ofGRPC(get("/deny"))); a.grpcStatus != "14" {
		t.Errorf("ext_authz, deny, gRPC: got grpc-status %q, want 14, UNAVAILABLE", a.grpcStatus)
	}
	if a := limits.do(t, ofGRPC(claim("deny"))); a.grpcStatus != "8" {
		t.Errorf("ratelimit, deny, gRPC: got grpc-status %q, want 8, RESOURCE_EXHAUSTED", a.grpcStatus)
	}
	if n := service.metric(t, `extauthz_store_errors_total{policy="deny"}`); n < 4 {
		t.Errorf("extauthz_store_errors_total of deny: got %d, want at least 4", n)
	}
	if n := service.metric(t, "extauthz_store_up"); n != 0 {
		t.Errorf("extauthz_store_up: got %d, want 0", n)
	}
	wantLog(t, service, "Redis does not answer")

	server.Restart()
	awaitStatus(t, authz, get("/deny"), http.StatusOK)
	wantLog(t, service, "Redis answers again")
	testenv.Eventually(t, func() error {
		if n := service.metric(t, "extauthz_store_up"); n != 1 {
			return fmt.Errorf("extauthz_store_up is %d", n)
		}
		return nil
	}, "extauthz_store_up to be 1 after Redis has started again")
}

// TestRedisFull has a Redis that answers but stores nothing, because its memory is full.
func TestRedisFull(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	service, authz, limits := startFailing(t, "REDIS_URL=redis://"+server.Addr, "REDIS_TIMEOUT="+longTimeout)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if allowed, denied := authz.tally(t, 5, get("/local")); allowed != 3 {
		t.Errorf("ext_authz: got %d allowed and %d denied; want 3 and 2, decided in local memory", allowed, denied)
	}
	if allowed, denied := limits.tally(t, 5, claim("local")); allowed != 3 {
		t.Errorf("ratelimit: got %d allowed and %d denied; want 3 and 2, decided in local memory", allowed, denied)
	}
	wantLog(t, service, "reason=OOM")
	if n := service.metric(t, `extauthz_store_undecided_total{reason="OOM"}`); n < 6 {
		t.Errorf("extauthz_store_undecided_total of OOM: got %d, want at least the 6 that were allowed", n)
	}
}

// TestServiceSilent pauses the service: it does not answer, and Envoy's timeouts end the calls.
func TestServiceSilent(t *testing.T) {
	t.Parallel()
	service := startWithFailureRules(t)
	// These Envoys wait about as long as the sample configuration says. The client waits for that time only, because the
	// service does not answer.
	briefly := func(_ *testing.T, config string) string { return strings.ReplaceAll(config, longTimeout, "0.250s") }
	authz := startEnvoy(t, service.grpcPort, without(ratelimitFilter), briefly)
	limits := startEnvoy(t, service.grpcPort, without(extAuthz), briefly)
	service.Pause()
	if a := authz.do(t, get("/local")); a.status != http.StatusServiceUnavailable {
		t.Errorf("ext_authz: got %d, want 503 after the timeout", a.status)
	}
	if a := limits.do(t, claim("local")); a.status != http.StatusOK {
		t.Errorf("ratelimit: got %d, want 200 after the timeout", a.status)
	}
	for name, n := range map[string]int{
		"ext_authz.error": authz.Stat("cluster.application.ext_authz.error"),
		"ratelimit.error": limits.ratelimitStat("error"),
	} {
		if n != 1 {
			t.Errorf("%s: got %d, want 1", name, n)
		}
	}
	service.Resume()
	awaitStatus(t, authz, get("/local"), http.StatusOK)
}

// TestReplicaGoes ends one of two replicas as a rolling update does (SIGTERM). Envoy learns it in time from the
// health check, and no request fails.
func TestReplicaGoes(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, failureRules)
	// Envoy's health check fails after two failures, here 0.1 s apart. The rest of the 10 s is for a busy test machine.
	goes := startService(t, "RUNTIME_ROOT="+root, serverSecret, "DRAIN_DELAY=10s")
	stays := startService(t, "RUNTIME_ROOT="+root, serverSecret)
	const endpoint = "socket_address: { address: 127.0.0.1, port_value: 8081 }"
	envoy := startEnvoy(t, goes.grpcPort, instead(endpoint, endpoint+`
              - endpoint:
                  address:
                    `+strings.Replace(endpoint, "8081", strconv.Itoa(stays.grpcPort), 1)),
		instead("          interval: 2s\n          ", "          interval: 0.1s\n          "),
		instead("no_traffic_interval: 2s", "no_traffic_interval: 0.1s"))

	ended := make(chan error, 1)
	go func() { ended <- goes.Terminate() }()
	for n := 1; ; n++ {
		if a := envoy.do(t, claim("allow"+strconv.Itoa(n))); a.status != http.StatusOK {
			t.Errorf("request %d: got %d %s, want 200", n, a.status, a.body)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			for _, filter := range []string{"ext_authz", "ratelimit"} {
				if failed := envoy.Stat("cluster.application." + filter + ".error"); failed != 0 {
					t.Errorf("%d of %d calls of %s failed", failed, n, filter)
				}
			}
			return
		default:
		}
	}
}

// TestUnknownDomain has an Envoy whose domain is in no rule file. ext_authz denies all requests, and ratelimit allows
// all.
func TestUnknownDomain(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, failureRules)
	service := startService(t, "RUNTIME_ROOT="+root, serverSecret)
	authz := startEnvoy(t, service.grpcPort, without(ratelimitFilter),
		instead("context_extensions: { domain: sample }", "context_extensions: { domain: simple }"))
	limits := startEnvoy(t, service.grpcPort, without(extAuthz),
		instead("\n                      domain: sample\n", "\n                      domain: simple\n"))

	if a := authz.do(t, get("/local")); a.status != http.StatusForbidden {
		t.Errorf("ext_authz: got %d %s, want 403", a.status, a.body)
	}
	if n := service.metric(t, `extauthz_authz_decisions_total{domain="",reason="no_policy"}`); n != 1 {
		t.Errorf("no_policy: got %d, want 1", n)
	}
	if allowed, denied := limits.tally(t, 5, claim("local")); allowed != 5 {
		t.Errorf("ratelimit: got %d allowed and %d denied, want 5 and none", allowed, denied)
	}
	if n := service.metric(t, `extauthz_ratelimit_unknown_domain_total{domain="simple"}`); n != 5 {
		t.Errorf("extauthz_ratelimit_unknown_domain_total of simple: got %d, want 5", n)
	}
}

// TestIssuerAway has an issuer whose keys are unavailable. Its tokens cannot be verified; other credentials can.
func TestIssuerAway(t *testing.T) {
	t.Parallel()
	issuer, keys := newIssuer(t), keysInFile(t)
	key := keys.create(t, "--owner", "bob")
	root, _ := rulesDirectory(t, policy(t, issuer))
	if err := os.Remove(issuer.file); err != nil {
		t.Fatal(err)
	}
	service := startService(t, append(keys.environment, "RUNTIME_ROOT="+root)...)
	envoy := startEnvoy(t, service.grpcPort)

	token := get("/", issuer.bearer(t, nil))
	if a := envoy.do(t, token); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("a token: got %d %v %s, want 503 and retry-after", a.status, a.header, a.body)
	}
	if a := envoy.do(t, get("/", [2]string{"x-api-key", key})); a.status != http.StatusOK {
		t.Errorf("an API key: got %d %s, want 200", a.status, a.body)
	}
	if n := service.metric(t, fmt.Sprintf("extauthz_jwks_keys{source=%q}", issuer.file)); n != 0 {
		t.Errorf("extauthz_jwks_keys: got %d, want 0", n)
	}
	wantLog(t, service, "cannot read the keys of an issuer; it has no keys yet")

	issuer.rotate(t, "second")
	awaitStatus(t, envoy, get("/", issuer.bearer(t, nil)), http.StatusOK)
}

// wantLog waits until the service has logged this text.
func wantLog(t *testing.T, s *service, want string) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if !strings.Contains(s.Output(), want) {
			return fmt.Errorf("the log of the service:\n%s", s.Output())
		}
		return nil
	}, fmt.Sprintf("the service to log %q", want))
}
