package service

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestLimitMetrics has rules with several limits, without any, and with a name in common: Prometheus refuses the whole
// scrape if two samples have the same name and labels.
func TestLimitMetrics(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRoot(t)
	const rules = `
domain: shop
descriptors:
  - key: path
    limits: [{unit: second, requests_per_unit: 10}, {unit: hour, requests_per_unit: 1000}]
  - key: health
    rate_limit: {name: none, unlimited: true}
  - key: a_b
    rate_limit: {unit: minute, requests_per_unit: 1}
  - key: a # its name is a_b, too
    value: b
    rate_limit: {unit: minute, requests_per_unit: 2}
`
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	_, _, debugAddr, _ := start(t, configured(func(s *settings.Settings) { s.Rules.Root = root }))
	_, body := get(t, "http://"+debugAddr+"/metrics")
	want := `
extauthz_rule_limit{domain="shop",limit="a_b",rule="a_b"} 1
extauthz_rule_limit{domain="shop",limit="path-10-a-1-second",rule="path"} 10
extauthz_rule_limit{domain="shop",limit="path-1000-a-1-hour",rule="path"} 1000
extauthz_rule_window_seconds{domain="shop",limit="a_b",rule="a_b"} 60
extauthz_rule_window_seconds{domain="shop",limit="path-10-a-1-second",rule="path"} 1
extauthz_rule_window_seconds{domain="shop",limit="path-1000-a-1-hour",rule="path"} 3600
`
	if diff := cmp.Diff(want, "\n"+samplesOf(body, "extauthz_rule_")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestUndecidedReasons uses a server that replies with unknown error codes.
func TestUndecidedReasons(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	observe := observeUndecided(slog.New(slog.DiscardHandler), registry)
	for _, reason := range []string{"OOM", "OOM", "client:key", "more of it"} {
		observe(&bucket.ScriptError{Code: reason})
	}
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	want := `
extauthz_store_undecided_total{reason="OOM"} 2
extauthz_store_undecided_total{reason="READONLY"} 0
extauthz_store_undecided_total{reason="other"} 2
`
	got := "\n"
	for _, reason := range []string{"OOM", "READONLY", "other", "client:key", "more of it"} {
		got += samplesOf(w.Body.String(), `extauthz_store_undecided_total{reason="`+reason+`"}`)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// samplesOf returns the lines of /metrics with this prefix.
func samplesOf(metrics, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, prefix) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// TestMetricsOfAnOutage has Redis refuse connections, and begin empty again. The metrics show what decided, and what
// became of the units that were admitted meanwhile.
func TestMetricsOfAnOutage(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	grpcAddr, _, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Redis.Main.URL = server.Addr
		s.Redis.Main.Timeout = 10 * time.Second
		s.Rules.Root = testenv.RulesRootWith(t, `
domain: shop
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 5, algorithm: token_bucket}}
  - {key: hot, rate_limit: {unit: year, requests_per_unit: 1000000, algorithm: fixed_window, lease: 10}}
  - {key: probe, rate_limit: {unit: year, requests_per_unit: 1000000, on_store_error: deny}}
`)
	}))
	await := func(want ...string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			for _, line := range want {
				if !strings.Contains(metrics, "\n"+line+"\n") {
					return fmt.Errorf("no %q in\n%s%s%s", line, samplesOf(metrics, "extauthz_fallback_"),
						samplesOf(metrics, "extauthz_ratelimit_requests_total"), samplesOf(metrics, "extauthz_store_"))
				}
			}
			return nil
		}, "the metrics to have these lines")
	}
	const by = `extauthz_ratelimit_requests_total{decided_by="%s"} %d`
	const units = `extauthz_fallback_units_total{kind="%s"} %d`
	send(t, grpcAddr, []string{"shop 2 user=a"})
	await(fmt.Sprintf(by, "store", 1), fmt.Sprintf(units, "admitted", 0), "extauthz_fallback_owing_buckets 0",
		"extauthz_store_floors_total 0")
	server.Kill()
	testenv.Eventually(t, func() error { // only a request notices it; the first one may have an unknown outcome
		send(t, grpcAddr, []string{"shop 1 probe=x"})
		if _, metrics := get(t, "http://"+debugAddr+"/metrics"); !strings.Contains(metrics, "\nextauthz_store_up 0\n") {
			return errors.New("extauthz_store_up is 1")
		}
		return nil
	}, "the service to notice that Redis is down")
	send(t, grpcAddr, []string{"shop 2 user=a", "shop 3 user=b", "shop 2 user=a"})
	await(fmt.Sprintf(by, "last_known_state", 3), fmt.Sprintf(units, "admitted", 5), fmt.Sprintf(units, "caught_up", 0),
		fmt.Sprintf(units, "uncertain", 0), "extauthz_fallback_owing_buckets 2")
	server.Restart()
	await(fmt.Sprintf(units, "caught_up", 5), fmt.Sprintf(units, "minted", 0), "extauthz_fallback_owing_buckets 0")
	testenv.Eventually(t, func() error {
		_, metrics := get(t, "http://"+debugAddr+"/metrics")
		if strings.Contains(metrics, "extauthz_store_floors_total 0\n") {
			return errors.New("no floor was sent")
		}
		return nil
	}, "a floor for the bucket that Redis has lost")
	send(t, grpcAddr, slices.Repeat([]string{"shop 1 hot=key"}, 50))
	_, metrics := get(t, "http://"+debugAddr+"/metrics")
	if got := samplesOf(metrics, `extauthz_ratelimit_requests_total{decided_by="lease"}`); got == "" ||
		strings.HasSuffix(got, " 0\n") {
		t.Errorf("50 requests for a key with a lease: %q, want some by it", got)
	}
}

// TestDecisionsByLimit has a rule with several limits: each decision counts for the limit that binds.
func TestDecisionsByLimit(t *testing.T) {
	t.Parallel()
	grpcAddr, _, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, `
domain: shop
descriptors:
  - key: path
    limits:
      - {name: daily, unit: day, requests_per_unit: 10}
      - {name: yearly, unit: year, requests_per_unit: 15, algorithm: fixed_window}
`)
	}))
	send(t, grpcAddr, []string{"shop 9 path=/a", "shop 11 path=/a", "shop 16 path=/b", "shop 1 other=x"})
	_, body := get(t, "http://"+debugAddr+"/metrics")
	want := `
extauthz_ratelimit_decisions_total{decision="allowed",domain="shop",limit="daily",rule="path"} 1
extauthz_ratelimit_decisions_total{decision="allowed",domain="shop",limit="yearly",rule="path"} 0
extauthz_ratelimit_decisions_total{decision="denied",domain="shop",limit="daily",rule="path"} 2
extauthz_ratelimit_decisions_total{decision="denied",domain="shop",limit="yearly",rule="path"} 0
extauthz_ratelimit_decisions_total{decision="shadow_denied",domain="shop",limit="daily",rule="path"} 0
extauthz_ratelimit_decisions_total{decision="shadow_denied",domain="shop",limit="yearly",rule="path"} 0
`
	got := "\n" + samplesOf(body, "extauthz_ratelimit_decisions_total")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	const decided = `extauthz_ratelimit_requests_total{decided_by="store"}`
	if diff := cmp.Diff(decided+" 3\n", samplesOf(body, decided)); diff != "" {
		t.Errorf("the request without a rule is none of them (-want +got)\n%s", diff)
	}
}
