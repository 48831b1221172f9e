package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestAnonymous allows requests without a credential, with each of the two settings that do so.
func TestAnonymous(t *testing.T) {
	for _, c := range []struct{ name, line string }{
		{"anonymous: allow", "  anonymous: allow\n"},
		{"absent: pass", "  absent: { pass: true }\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			issuer := newIssuer(t)
			root, _ := rulesDirectory(t, instead("  preflight: allow\n", c.line)(t, policy(t, issuer)))
			envoy := startEnvoy(t, startService(t, "RUNTIME_ROOT="+root, serverSecret).grpcPort)

			a := envoy.do(t, get("/", [2]string{"x-auth-owner", "ann"}, [2]string{"x-auth-plan", "gold"}))
			if a.status != http.StatusOK {
				t.Fatalf("without a credential: got %d %s, want 200", a.status, a.body)
			}
			wantHeaders(t, "the application", a.saw(),
				http.Header{"X-Auth-Owner": nil, "X-Auth-Plan": nil, "X-Auth-Method": {"anonymous"}})
			if a := envoy.do(t, get("/", [2]string{"authorization", "Bearer x"})); a.status != http.StatusUnauthorized {
				t.Errorf("with an invalid credential: got %d, want 401", a.status)
			}
			if a := envoy.do(t, get("/internal/metrics")); a.status != http.StatusForbidden {
				t.Errorf("a denied path: got %d, want 403", a.status)
			}
			// All requests without a credential share one bucket of a route.
			if allowed, _ := envoy.tally(t, 6, call{method: http.MethodPost, path: "/posts"}); allowed != 4 {
				t.Errorf("posts without a credential: got %d of 6 allowed, want 4", allowed)
			}
			a = envoy.do(t, get("/", issuer.bearer(t, nil)))
			wantHeaders(t, "the application", a.saw(), http.Header{"X-Auth-Owner": {"ann"}})
		})
	}
}

// TestPolicyReload changes the policy while the service runs.
func TestPolicyReload(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	bearer := s.issuer.bearer(t, nil)
	if a := s.do(t, get("/internal/metrics", bearer)); a.status != http.StatusForbidden {
		t.Fatalf("before: got %d, want 403", a.status)
	}
	replace(t, s.rules, instead("{ path: { prefix: /internal }, require: denied }",
		"{ path: { prefix: /internal }, scopes: [ops] }")(t, policy(t, s.issuer)))
	awaitStatus(t, s.proxy, get("/internal/metrics", s.issuer.bearer(t, claims{"scope": "ops"})), http.StatusOK)
	if a := s.do(t, get("/internal/metrics", bearer)); a.status != http.StatusForbidden {
		t.Errorf("without the scope: got %d, want 403", a.status)
	}
	// A file with a mistake is only logged.
	replace(t, s.rules, strings.Replace(policy(t, s.issuer), "require: denied", "require: none", 1))
	testenv.Eventually(t, func() error {
		if !strings.Contains(s.service.Output(), "refused") {
			return fmt.Errorf("the log of the service:\n%s", s.service.Output())
		}
		return nil
	}, "a log line about the mistake")
	if a := s.do(t, get("/internal/metrics", s.issuer.bearer(t, claims{"scope": "ops"}))); a.status != http.StatusOK {
		t.Errorf("after a file with a mistake: got %d, want 200 as before", a.status)
	}
	// Without a policy, all requests are denied.
	replace(t, s.rules, "domain: sample\n")
	awaitStatus(t, s.proxy, get("/public/logo.png"), http.StatusForbidden)
}

// awaitStatus repeats a call until it gets this status.
func awaitStatus(t *testing.T, envoy *proxy, c call, want int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if a := envoy.do(t, c); a.status != want {
			return fmt.Errorf("%s %s: got %d %s", c.method, c.path, a.status, a.body)
		}
		return nil
	}, fmt.Sprintf("status %d", want))
}

// TestIssuersNewKey replaces the key of an issuer while tokens of both keys are in use. Tokens of the new key become
// valid, tokens of the old key become invalid, and tokens of an unknown issuer are never valid.
func TestIssuersNewKey(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	unknown := newIssuer(t).bearer(t, nil)
	old := s.issuer.bearer(t, nil)
	if a := s.do(t, get("/", old)); a.status != http.StatusOK {
		t.Fatalf("before: got %d %s, want 200", a.status, a.body)
	}
	s.issuer.rotate(t, "second")
	recent := s.issuer.bearer(t, nil)
	testenv.Eventually(t, func() error {
		if a := s.do(t, get("/", unknown)); a.status != http.StatusUnauthorized {
			t.Errorf("a token of an unknown issuer: got %d, want 401", a.status)
		}
		if a := s.do(t, get("/", recent)); a.status != http.StatusOK {
			return fmt.Errorf("with the new key: got %d %s", a.status, a.body)
		}
		return nil
	}, "tokens of the new key to become valid")
	awaitStatus(t, s.proxy, get("/", old), http.StatusUnauthorized)
	wantHeaders(t, "the application", s.do(t, get("/", recent)).saw(), http.Header{"X-Auth-Key-Id": {"second"}})
}

// TestAuthzRedisAway stops Redis: the limits of ext_authz still apply, decided in the memory of the process.
func TestAuthzRedisAway(t *testing.T) {
	t.Parallel()
	issuer, redis := newIssuer(t), testenv.Redis(t)
	root, _ := rulesDirectory(t, policy(t, issuer))
	service := startService(t, "RUNTIME_ROOT="+root, serverSecret, "REDIS_URL=redis://"+redis.Addr,
		"REDIS_TIMEOUT="+longTimeout)
	envoy := startEnvoy(t, service.grpcPort)
	few := func(sub string) call { return get("/few/things", issuer.bearer(t, claims{"sub": sub})) }
	if allowed, denied := envoy.tally(t, 5, few("before")); allowed != 3 {
		t.Errorf("before: got %d allowed and %d denied; want 3 and 2", allowed, denied)
	}
	redis.Kill()
	if allowed, denied := envoy.tally(t, 5, few("meanwhile")); allowed != 3 {
		t.Errorf("while Redis is unavailable: got %d allowed and %d denied; want 3 and 2", allowed, denied)
	}
	if a := envoy.do(t, get("/few/things")); a.status != http.StatusUnauthorized {
		t.Errorf("while Redis is unavailable, no credential: got %d, want 401", a.status)
	}
	redis.Restart()
	// The service counts in memory until it notices that Redis is back. Then Redis counts, from 0.
	if allowed, denied := envoy.tally(t, 3+3+1, few("afterwards")); allowed < 3 || denied == 0 {
		t.Errorf("after Redis is back: got %d allowed and %d denied; want at least 3 and 1", allowed, denied)
	}
	if n := envoy.Stat("cluster.application.ext_authz.error"); n != 0 {
		t.Errorf("ext_authz.error: got %d, want 0", n)
	}
}
