package e2e

import (
	"net/http"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestRedisAway stops Redis between requests. Limits still apply, decided in the memory of the process, and Envoy
// gets an answer to every call.
func TestRedisAway(t *testing.T) {
	for _, c := range []struct {
		name, timeout string
		stop, start   func(*testenv.RedisServer)
	}{
		{"killed", longTimeout, (*testenv.RedisServer).Kill, (*testenv.RedisServer).Restart},
		// Each request waits this long for a silent Redis. On a busy test machine, a Redis that works may take longer than
		// the default of 50 ms.
		{"silent", "2s", (*testenv.RedisServer).Pause, (*testenv.RedisServer).Resume},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			redis := testenv.Redis(t)
			root, _ := rulesDirectory(t, testenv.RepoFile(t, sampleRules))
			service := startService(t, "RUNTIME_ROOT="+root, serverSecret, "REDIS_URL=redis://"+redis.Addr,
				"REDIS_TIMEOUT="+c.timeout)
			envoy := startEnvoy(t, service.grpcPort, without(extAuthz))
			// With Redis, requests are allowed up to the limit.
			if allowed, denied := envoy.tally(t, 7, claim("before")); allowed != 5 {
				t.Errorf("before: got %d allowed and %d denied; want 5 and 2", allowed, denied)
			}

			c.stop(redis)
			// Without Redis, another device has the same limit.
			if allowed, denied := envoy.tally(t, 6, claim("meanwhile")); allowed != 5 {
				t.Errorf("while Redis is unavailable: got %d allowed and %d denied; want 5 and 1", allowed, denied)
			}

			c.start(redis)
			// The service counts in memory until it notices that Redis is back. Then Redis counts, from 0.
			if allowed, denied := envoy.tally(t, 5+5+1, claim("afterwards")); allowed < 5 || denied == 0 {
				t.Errorf("after Redis is back: got %d allowed and %d denied; want at least 5 and 1", allowed, denied)
			}
			envoy.checkNoFailures(t)
		})
	}
}

// TestServiceAway checks the behaviour of the sample configuration while no service runs.
func TestServiceAway(t *testing.T) {
	t.Parallel()
	const n = 7
	get := call{method: http.MethodGet, path: "/", header: [][2]string{{"x-api-key", "demo"}}}

	t.Run("ext_authz: requests get 503", func(t *testing.T) {
		t.Parallel()
		envoy := startEnvoy(t, testenv.FreePort(t))
		for range n {
			if a := envoy.do(t, get); a.status != http.StatusServiceUnavailable || a.saw() != nil {
				t.Errorf("got %d, the application received %v; want 503, nothing", a.status, a.saw())
			}
		}
		if a := envoy.do(t, call{method: http.MethodPost, path: "/echo.Echo/Say", grpc: true}); a.grpcStatus != "14" {
			t.Errorf("a gRPC client: got grpc-status %q, want 14, UNAVAILABLE", a.grpcStatus)
		}
		if got := envoy.Stat("cluster.application.ext_authz.error"); got != n+1 {
			t.Errorf("ext_authz.error: got %d, want %d", got, n+1)
		}
		if a := envoy.do(t, call{method: http.MethodGet, path: "/healthz"}); a.status != http.StatusOK {
			t.Errorf("/healthz: got %d, want 200, because Envoy does not call the service for it", a.status)
		}
	})
	t.Run("ratelimit: requests are allowed, and Envoy counts the errors", func(t *testing.T) {
		t.Parallel()
		envoy := startEnvoy(t, testenv.FreePort(t), without(extAuthz))
		if allowed, denied := envoy.tally(t, n, get); allowed != n {
			t.Errorf("got %d allowed and %d denied; want %d allowed", allowed, denied, n)
		}
		for _, outcome := range []string{"error", "failure_mode_allowed"} {
			if got := envoy.ratelimitStat(outcome); got != n {
				t.Errorf("ratelimit.%s: got %d, want %d", outcome, got, n)
			}
		}
	})
	t.Run("ratelimit, failure_mode_deny: requests get 503", func(t *testing.T) {
		t.Parallel()
		envoy := startEnvoy(t, testenv.FreePort(t), without(extAuthz),
			instead("failure_mode_deny: false", "failure_mode_deny: true"))
		if a := envoy.do(t, get); a.status != http.StatusServiceUnavailable || a.saw() != nil {
			t.Errorf("got %d, the application received %v; want 503, nothing", a.status, a.saw())
		}
	})
}
