package e2e

import (
	"net/http"
	"strings"
	"testing"
)

// methodRules limit POST and no other method.
const methodRules = `
domain: sample
authz:
  anonymous: allow
  limits:
    - actions: [{ method: }]
descriptors:
  - { key: method, value: POST, rate_limit: { unit: year, requests_per_unit: 3, algorithm: fixed_window } }
`

// TestMethods spells POST in other cases. Many applications take all of them for POST, so they share its limits: those
// of the routes of the sample, and those of a policy. Envoy refuses the others over HTTP/1, not over HTTP/2.
func TestMethods(t *testing.T) {
	t.Parallel()
	spellings := []string{http.MethodPost, "post", "Post", "pOST"}
	// counts sends n requests for each spelling, and returns how many pass.
	counts := func(t *testing.T, envoy *proxy, n int, path string, fields ...string) (allowed, denied int) {
		t.Helper()
		for range n {
			for _, method := range spellings {
				fields := append([]string{":method", method, ":path", path, ":authority", "example.com"}, fields...)
				switch a := envoy.sendHTTP2(t, fields...); a.status {
				case http.StatusOK:
					allowed++
				case http.StatusTooManyRequests:
					denied++
				default:
					t.Fatalf("%s %s: got %d, want 200 or 429", method, path, a.status)
				}
			}
		}
		return allowed, denied
	}
	routes := func(t *testing.T, edits ...edit) {
		t.Helper()
		t.Parallel()
		envoy := startEnvoy(t, startService(t).grpcPort, append(edits, without(extAuthz))...)
		if allowed, denied := counts(t, envoy, 3, "/rewards", "x-device-id", "one"); allowed != 5 || denied != 7 {
			t.Errorf("/rewards: got %d allowed and %d denied, want 5 and 7", allowed, denied)
		}
		if allowed, denied := counts(t, envoy, 3, "/accounts"); allowed != 10 || denied != 2 {
			t.Errorf("/accounts: got %d allowed and %d denied, want 10 and 2", allowed, denied)
		}
		for _, method := range spellings {
			a := envoy.sendHTTP2(t, ":method", method, ":path", "/rewards", ":authority", "example.com")
			if a.status != http.StatusBadRequest {
				t.Errorf("%s /rewards without a device: got %d, want 400", method, a.status)
			}
		}
	}
	t.Run("routes", func(t *testing.T) { routes(t) })
	t.Run("routes that Istio makes of istio/example", func(t *testing.T) {
		routes(t, func(_ *testing.T, config string) string {
			return strings.ReplaceAll(config, "exact: POST, ignore_case: true", `safe_regex: { regex: "(?i:POST)" }`)
		})
	})
	t.Run("a policy", func(t *testing.T) {
		t.Parallel()
		root, _ := rulesDirectory(t, methodRules)
		envoy := startEnvoy(t, startService(t, "RUNTIME_ROOT="+root).grpcPort)
		if allowed, denied := counts(t, envoy, 2, "/"); allowed != 3 || denied != 5 {
			t.Errorf("got %d allowed and %d denied, want 3 and 5", allowed, denied)
		}
	})
}
