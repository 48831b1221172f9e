package service

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// TestLimits has rules with several limits, without any, and with a name in common: Prometheus takes no two samples of one name,
// and then none at all.
func TestLimits(t *testing.T) {
	limit := func(requests int64, unit descriptors.Unit) ratelimit.Limit {
		return ratelimit.Limit{Requests: &requests, Unit: unit}
	}
	rules := ratelimit.NewRules([]ratelimit.Domain{{Name: "shop", Descriptors: []ratelimit.Node{
		{Key: "path", Limits: []ratelimit.Limit{limit(10, descriptors.Second), limit(1000, descriptors.Hour)}},
		{Key: "health", RateLimit: &ratelimit.Limit{Name: "none", Unlimited: true}},
		{Key: "a_b", Limits: []ratelimit.Limit{limit(1, descriptors.Minute)}},
		{Key: "a", Value: "b", Limits: []ratelimit.Limit{limit(2, descriptors.Minute)}}, // its name is a_b, too
	}}}, ratelimit.RulesOptions{})
	limits := func() *ratelimit.Rules { return rules }
	registry := prometheus.NewRegistry()
	registry.MustRegister(&Collector{
		Limits: limits, Limiter: ratelimit.New(ratelimit.Config{Rules: limits}), Authorizer: authz.New(authz.Config{}),
		Check:   func() (s CheckStats) { return },
		Issuers: func() (s []IssuerStats) { return },
		Keys:    func() (s KeyStats) { return },
		Memory:  func() (s MemoryStats) { return },
		Rules:   func() (s RuleStats) { return },
	})
	want := `
extauthz_rule_limit{domain="shop",limit="a_b",rule="a_b"} 1
extauthz_rule_limit{domain="shop",limit="path-10-a-1-second",rule="path"} 10
extauthz_rule_limit{domain="shop",limit="path-1000-a-1-hour",rule="path"} 1000
extauthz_rule_window_seconds{domain="shop",limit="a_b",rule="a_b"} 60
extauthz_rule_window_seconds{domain="shop",limit="path-10-a-1-second",rule="path"} 1
extauthz_rule_window_seconds{domain="shop",limit="path-1000-a-1-hour",rule="path"} 3600
`
	if diff := cmp.Diff(want, "\n"+samples(registry, "extauthz_rule_")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestUndecided has a server reply what nobody has foreseen.
func TestUndecided(t *testing.T) {
	registry := prometheus.NewRegistry()
	u := NewUndecided(registry, "OOM", "busy")
	for _, reason := range []string{"OOM", "OOM", "client:key", "more of it"} {
		u.Count(reason)
	}
	want := `
extauthz_store_undecided_total{reason="OOM"} 2
extauthz_store_undecided_total{reason="busy"} 0
extauthz_store_undecided_total{reason="other"} 2
`
	if diff := cmp.Diff(want, "\n"+samples(registry, "extauthz_")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// samples are the lines of /metrics that begin so.
func samples(registry *prometheus.Registry, prefix string) string {
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	var b strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if strings.HasPrefix(line, prefix) || w.Code != 200 {
			b.WriteString(line)
		}
	}
	return b.String()
}
