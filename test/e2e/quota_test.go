package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/extauthz/extauthz/test/testenv"
)

const quotaRules = `
domain: shop
descriptors:
  - key: owner
    limits:
      - { name: few, unit: day, requests_per_unit: 4, override: { max: 100 } }
      - { name: hidden, unit: hour, requests_per_unit: 50, headers: off }
  - { key: address, rate_limit: { name: per-address, unit: day, requests_per_unit: 90 } }
  - { key: refused_address, rate_limit: { name: refused, unit: day, requests_per_unit: 2, algorithm: token_bucket } }
authz:
  credentials: [{ api_key: { header: x-api-key } }]
  quota_path: /quota
  limits:
    - actions: [{ credential: { field: owner } }]
    - actions: [{ remote_address: { key: address } }]
  refused:
    - actions: [{ remote_address: { key: refused_address } }]
`

// quotaStores starts the service with buckets in memory and in Redis, and calls test with each.
func quotaStores(t *testing.T, test func(t *testing.T, s *service, ann, bob [2]string)) {
	for _, name := range []string{"memory", "redis"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root, file := rulesDirectory(t, quotaRules)
			other := strings.Replace(strings.Replace(quotaRules, "shop", "other", 1), "  quota_path: /quota\n", "", 1)
			if err := os.WriteFile(filepath.Join(filepath.Dir(file), "other.yaml"), []byte(other), 0o600); err != nil {
				t.Fatal(err)
			}
			keys := keysInFile(t)
			ann := [2]string{"x-api-key", keys.create(t, "--owner", "ann")}
			bob := [2]string{"x-api-key", keys.create(t, "--owner", "bob", "--limit", "60/day")}
			environment := append(keys.environment, "RUNTIME_ROOT="+root, "AUTHZ_DOMAIN=shop",
				"AUTHZ_HTTP_TIMEOUT="+longTimeout, "AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source")
			if name == "redis" {
				environment = append(environment, "REDIS_URL=redis://"+testenv.Redis(t).Addr, "REDIS_TIMEOUT="+longTimeout)
			}
			test(t, startService(t, environment...), ann, bob)
		})
	}
}

// wantQuota compares an answer with names of limits and what they leave, in order.
func wantQuota(t *testing.T, a answer, names string, remaining ...int64) {
	t.Helper()
	var body struct {
		Limits []struct {
			Name                                  string
			Limit, Window, Used, Remaining, Reset int64
		}
	}
	if err := json.Unmarshal([]byte(a.body), &body); err != nil || a.status != http.StatusOK {
		t.Fatalf("got %d %s, want 200 and JSON (%v)", a.status, a.body, err)
	}
	var got []string
	for i, l := range body.Limits {
		got = append(got, l.Name)
		if i >= len(remaining) || l.Remaining != remaining[i] || l.Used+l.Remaining != l.Limit || l.Window != 86400 ||
			(l.Used > 0) != (l.Reset > 0) {
			t.Errorf("limit %d of %s: got %+v, want %v remaining", i, names, l, remaining)
		}
	}
	if strings.Join(got, " ") != names {
		t.Errorf("got the limits %v, want %s", got, names)
	}
	wantHeaders(t, "the client", a.header, http.Header{
		"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "Retry-After": nil,
	})
	if a.header.Get("Ratelimit") == "" || a.saw() != nil {
		t.Errorf("got ratelimit %q, and the application received %v", a.header.Get("Ratelimit"), a.saw())
	}
}

// TestQuota reads the quota through Envoy over gRPC.
func TestQuota(t *testing.T) {
	t.Parallel()
	quotaStores(t, func(t *testing.T, s *service, ann, bob [2]string) {
		page, err := readRecipe(testenv.RepoFile(t, cookbook+"/read-your-quota.md"))
		if err != nil {
			t.Fatal(err)
		}
		page.files[envoyLines] = `# Here: routes
- match: { prefix: /, headers: [{ name: x-other, present_match: true }] }
  route: { cluster: application }
  typed_per_filter_config:
    envoy.filters.http.ext_authz:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
      check_settings: { context_extensions: { domain: other } }
`
		running := testenv.Envoy(t, shortTimeout.ReplaceAllString(page.envoy(t), "${1}timeout: "+longTimeout),
			testenv.Ports{10000: 0, 8000: testenv.Port(t, application(t)), 8081: s.grpcPort})
		envoy := &proxy{EnvoyProxy: running, addr: running.Listener("ingress")}
		quota := get("/quota", ann)
		wantQuota(t, envoy.do(t, quota), "few per-address", 4, 90)
		for range 100 {
			wantQuota(t, envoy.do(t, quota), "few per-address", 4, 90)
		}
		for range 4 {
			if a := envoy.do(t, get("/", ann)); a.status != http.StatusOK {
				t.Fatalf("after 100 readings: got %d, want 4 requests that pass", a.status)
			}
		}
		if a := envoy.do(t, get("/", ann)); a.status != http.StatusTooManyRequests {
			t.Errorf("the fifth request: got %d, want 429", a.status)
		}
		wantQuota(t, envoy.do(t, quota), "few per-address", 0, 86)
		wantQuota(t, envoy.do(t, get("/quota?a=b", bob)), "few per-address", 60, 86)
		if a := envoy.do(t, call{method: http.MethodHead, path: "/quota", header: [][2]string{ann}}); a.status != 200 ||
			a.body != "" || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("HEAD: got %d %q %v, want 200, no body, and the headers of GET", a.status, a.body, a.header)
		}

		for _, c := range []struct {
			name   string
			call   call
			status int
		}{
			{"no credential", get("/quota"), 401},
			{"a wrong key", get("/quota", [2]string{"x-api-key", "wrong"}), 403},
			{"a third refusal", get("/quota"), 429},
			{"a valid key at that address", get("/quota", bob), 200},
			{"another method", call{method: http.MethodPost, path: "/quota", header: [][2]string{ann}}, 429},
			{"a policy without quota_path", get("/quota", [2]string{"x-other", ""}, bob), 200},
		} {
			if a := envoy.do(t, c.call); a.status != c.status {
				t.Errorf("%s: got %d %s, want %d", c.name, a.status, a.body, c.status)
			} else if c.status == 200 && strings.HasPrefix(a.body, "{") == strings.Contains(c.name, "without") {
				t.Errorf("%s: got %s", c.name, a.body)
			}
		}
		if got := envoy.invoke(t, "/quota", bob[0], bob[1]); got.Code() != codes.OK {
			t.Errorf("a gRPC call: got %v, want the OK of the application", got)
		}
		for series, want := range map[string]int{
			`extauthz_authz_decisions_total{domain="shop",reason="quota"}`:                                  105,
			`extauthz_authz_decisions_total{domain="other",reason="quota"}`:                                 0,
			`extauthz_ratelimit_decisions_total{decision="allowed",domain="shop",limit="few",rule="owner"}`: 4,
			`extauthz_ratelimit_decisions_total{decision="denied",domain="shop",limit="few",rule="owner"}`:  2,
			`extauthz_authz_failures_total{answer="limited",reason="absent"}`:                               1,
		} {
			if got := s.metric(t, series); got != want {
				t.Errorf("%s: got %d, want %d", series, got, want)
			}
		}
	})
}

// TestQuotaOverHTTP reads the quota through the route of docs/ext_authz.md, beside a filter that asks over HTTP.
func TestQuotaOverHTTP(t *testing.T) {
	t.Parallel()
	route := block(t, "docs/ext_authz.md", "yaml", "- match: {path: /quota}")
	const indent = "                        "
	route = indent + strings.ReplaceAll(strings.TrimSpace(route), "\n", "\n"+indent) + "\n"
	quotaStores(t, func(t *testing.T, s *service, ann, bob [2]string) {
		envoy := startEnvoyWith(t, "envoy/http-ext_authz.yaml",
			testenv.Ports{8000: testenv.Port(t, application(t)), 8080: s.httpPort},
			instead(indent+"- match: { prefix: / }\n", route+indent+"- match: { prefix: / }\n"))
		for range 100 {
			wantQuota(t, envoy.do(t, get("/quota", ann)), "few", 4)
		}
		if allowed, _ := envoy.tally(t, 5, get("/", ann)); allowed != 4 {
			t.Errorf("after 100 readings: got %d requests that pass, want 4", allowed)
		}
		wantQuota(t, envoy.do(t, get("/quota", ann)), "few", 0)
		wantQuota(t, envoy.do(t, get("/quota?a", bob)), "few", 60)
		for _, c := range []struct {
			name   string
			call   call
			status int
		}{
			{"no credential", get("/quota"), 401},
			{"an address that the client makes up", get("/quota", [2]string{"x-envoy-source", "192.0.2.1"}), 401},
			{"another one", get("/quota", [2]string{"x-envoy-source", "192.0.2.2"}, [2]string{"x-api-key", "wrong"}), 429},
			{"a valid key", get("/quota", bob), 200},
			{"another method", call{method: http.MethodPost, path: "/quota", header: [][2]string{bob}}, 405},
		} {
			if a := envoy.do(t, c.call); a.status != c.status || a.saw() != nil {
				t.Errorf("%s: got %d %s, and the application received %v; want %d", c.name, a.status, a.body, a.saw(), c.status)
			}
		}

		direct := &proxy{addr: strings.TrimPrefix(s.http, "http://")} // what Envoy's http_service gets
		a := direct.do(t, get("/check/quota", bob))
		if a.status != http.StatusOK || a.body != "" || a.header.Get("x-ext-authz-reason") != "allowed" {
			t.Errorf("/check/quota: got %d %s %v, want a permission", a.status, a.body, a.header)
		}
		wantQuota(t, direct.do(t, get("/quota", bob)), "few", 59)
		for _, wrong := range []string{"/check/quota", "/check//quota", "/check/quota?x-api-key"} {
			if a := direct.do(t, get(wrong, [2]string{"x-envoy-source", "192.0.2.3"})); a.status == http.StatusOK {
				t.Errorf("%s without a credential: got 200, which lets it pass", wrong)
			}
		}
	})
}
