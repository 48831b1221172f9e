package telemetry_test

import (
	"io"
	"log/slog"
	"testing"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// BenchmarkDenials measures a flood of denials by one rule, of which a log at INFO has ten lines a second.
func BenchmarkDenials(b *testing.B) {
	set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(
		"domain: shop\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 0}}]\n")}}, file.Config{})
	if err := problems.Err(); err != nil {
		b.Fatal(err)
	}
	rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
	log := telemetry.NewDecisionLog(telemetry.DecisionLogConfig{
		Log: slog.New(slog.NewJSONHandler(io.Discard, nil)), Rules: func() *ratelimit.Rules { return rules },
	})
	rule := rules.All()[0]
	res := ratelimit.Result{Statuses: []ratelimit.Status{{
		Rule: rule, Binding: &ratelimit.Applied{Limit: &rule.Limits[0]},
	}}}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			log.RateLimit(b.Context(), ratelimit.Query{Domain: "shop"}, res)
		}
	})
}
