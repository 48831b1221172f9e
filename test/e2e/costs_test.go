package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestCostsOfRoutes: Envoy reads `hits_addend` in typed_per_filter_config only. In the `rate_limits` of a virtual host
// or a route, each request costs 1, also with apply_on_stream_done. `extauthz check --envoy` reports it.
func TestCostsOfRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "rules"), 0o755); err != nil {
		t.Fatal(err)
	}
	rules := `domain: shop
descriptors:
  - {key: host, rate_limit: {name: host, unit: day, requests_per_unit: 1000, algorithm: fixed_window}}
  - {key: own, rate_limit: {name: own, unit: day, requests_per_unit: 1000, algorithm: fixed_window}}
  - {key: later, rate_limit: {name: later, unit: day, requests_per_unit: 1000, algorithm: fixed_window}}
  - {key: filter, rate_limit: {name: filter, unit: day, requests_per_unit: 1000, algorithm: fixed_window}}
`
	if err := os.WriteFile(filepath.Join(dir, "rules", "shop.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	r := recipe{files: map[string]string{envoyLines: `# Here: routes
- match: { prefix: /own }
  route:
    cluster: application
    rate_limits:
      - actions: [{ generic_key: { descriptor_key: own, descriptor_value: a } }]
        hits_addend: { number: 100 }
- match: { prefix: /later }
  route:
    cluster: application
    rate_limits:
      - actions: [{ generic_key: { descriptor_key: later, descriptor_value: a } }]
        hits_addend: { number: 100 }
        apply_on_stream_done: true
- match: { prefix: /filter }
  route: { cluster: application }
  typed_per_filter_config:
    envoy.filters.http.ratelimit:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute
      rate_limits:
        - actions: [{ generic_key: { descriptor_key: filter, descriptor_value: a } }]
          hits_addend: { number: 100 }
`}}
	const virtualHost = `                      domains: ["*"]` + "\n"
	config := instead(virtualHost, virtualHost+`                      rate_limits:
                        - actions: [{ generic_key: { descriptor_key: host, descriptor_value: a } }]
                          hits_addend: { number: 100 }
`)(t, without(extAuthz)(t, r.envoy(t)))
	d := deploy(t, dir, config, []string{"RUNTIME_ROOT=.", "RUNTIME_APPDIRECTORY=rules"})
	for _, c := range []struct{ path, left string }{
		{"/", `"host";r=999`}, {"/own", `"own";r=999`}, {"/filter", `"filter";r=900`}, {"/later", ""},
	} {
		answer, err := http.Get("http://" + d.envoy.addr + c.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		if got := strings.Join(answer.Header.Values("Ratelimit"), ", "); !strings.Contains(got, c.left) {
			t.Errorf("%s: got %d and ratelimit %q, want one with %s", c.path, answer.StatusCode, got, c.left)
		}
	}
	testenv.Eventually(t, func() error {
		peek := `{"domain": "shop", "descriptors": [{"entries": [{"key": "later", "value": "a"}], "hits_addend": 0}]}`
		answer, err := http.Post(d.service.http+"/json", "application/json", strings.NewReader(peek))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if left := answer.Header.Get("Ratelimit"); !strings.HasPrefix(left, `"later";r=999;`) {
			return fmt.Errorf("/later leaves %q, want 999", left)
		}
		return nil
	}, "Envoy to charge /later after its response")
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(binary, "check", "--envoy", file, filepath.Join(dir, "rules")).CombinedOutput()
	const ignored, charged = "error: Envoy ignores `hits_addend`", "warning: the cost is charged for denied requests"
	if n := strings.Count(string(out), ignored); err == nil || n != 3 || strings.Count(string(out), charged) != 1 {
		t.Errorf("extauthz check --envoy: %v, want %q 3 times and %q once:\n%s", err, ignored, charged, out)
	}
}
