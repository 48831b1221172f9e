package service

import (
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestMissesAreLogged sends descriptors with typos three times. The log has one warning for each kind, without values,
// and the metrics count each of them by its domain.
func TestMissesAreLogged(t *testing.T) {
	t.Parallel()
	const rules = "domain: shop\ndescriptors: [{key: tenant, rate_limit: {unit: minute, requests_per_unit: 9}}]\n"
	_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, rules)
	}))
	for range 3 {
		for _, body := range []string{
			`{"domain":"shop","descriptors":[{"entries":[{"key":"tenat","value":"quizzebra"}]}]}`,
			`{"domain":"shpo","descriptors":[{"entries":[{"key":"tenant","value":"quizzebra"}]}]}`,
			`{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"quizzebra"}]}]}`,
		} {
			res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
		}
	}
	const message = `level=WARN msg="no rule matches, so no limit applies (logged once an hour for each domain and keys)" `
	for _, want := range []string{
		message + `domain=shop keys=[tenat] miss="no rule for ` + "`tenat`; did you mean `tenant`?" + `"`,
		message + `domain=shpo miss="no rules for the domain ` + "`shpo`; did you mean `shop`?" + `"`,
	} {
		if n := strings.Count(logged(t, out, want), want); n != 1 {
			t.Errorf("%d lines with %s, want 1", n, want)
		}
	}
	if n := strings.Count(out.String(), message); n != 2 || strings.Contains(out.String(), "quizzebra") {
		t.Errorf("%d warnings, want 2, and no value of a client in\n%s", n, out)
	}
	_, metrics := get(t, "http://"+debugAddr+"/metrics")
	for _, want := range []string{
		`extauthz_ratelimit_unmatched_total{domain="shop"} 3`, `extauthz_ratelimit_unknown_domain_total{domain="shop"} 0`,
		`extauthz_ratelimit_unmatched_total{domain="shpo"} 0`, `extauthz_ratelimit_unknown_domain_total{domain="shpo"} 3`,
	} {
		if !strings.Contains(metrics, want+"\n") {
			t.Errorf("/metrics has no %s", want)
		}
	}
}
