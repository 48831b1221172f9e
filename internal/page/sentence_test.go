package page

import (
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// rulesOf compiles the rules of a domain in YAML.
func rulesOf(t testing.TB, descriptors string) *ratelimit.Rules {
	t.Helper()
	set, problems := file.Parse([]file.File{{Name: "a.yaml", Content: []byte("domain: shop\ndescriptors:\n" + descriptors)}},
		file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems.Err())
	}
	return ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
}

func TestSentence(t *testing.T) {
	t.Parallel()
	const hundred = "rate_limit: {unit: hour, requests_per_unit: 100}"
	for rule, want := range map[string]string{
		// whom
		"{key: owner, " + hundred + "}":             "At most 100 requests per hour for each owner (sliding window counter).",
		"{key: plan, value: gold, " + hundred + "}": "At most 100 requests per hour for all requests where plan is gold (sliding window counter).",
		"{key: path, value: /a/*, " + hundred + "}": "At most 100 requests per hour for each path like /a/* (sliding window counter).",
		"{key: a*, " + hundred + "}":                "At most 100 requests per hour for each key like a* with each value (sliding window counter).",
		"{key: a*, value: gold, " + hundred + "}":   "At most 100 requests per hour for each key like a* where its value is gold (sliding window counter).",
		"{key: plan, value: gold, descriptors: [{key: owner, descriptors: [{key: method, " + hundred + "}]}]}": "At most 100 requests per hour for each owner and method where plan is gold (sliding window counter).",
		"{key: path, value: /a/*, share_threshold: true, " + hundred + "}":                                     "At most 100 requests per hour for all requests where path is like /a/* (sliding window counter).",
		// how much
		"{key: owner, rate_limit: {unit: second, requests_per_unit: 1}}":                      "At most 1 request per second for each owner (sliding window log).",
		"{key: owner, rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 30}}": "At most 30 requests per 5 minutes for each owner (sliding window counter).",
		"{key: owner, rate_limit: {unit: day, requests_per_unit: 0}}":                         "No requests for each owner (sliding window log).",
		"{key: owner, rate_limit: {unlimited: true}}":                                         "No limit for each owner.",
		// the algorithm
		"{key: owner, rate_limit: {unit: week, requests_per_unit: 9, algorithm: fixed_window}}":                       "At most 9 requests per week for each owner (fixed window).",
		"{key: owner, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket, burst: 5}}":          "At most 60 requests per minute for each owner, up to 5 at once (token bucket).",
		"{key: owner, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: leaky_bucket, max_delay: 1500ms}}": "At most 60 requests per minute for each owner, held for up to 1s if early (leaky bucket).",
		// what it does
		"{key: owner, shadow_mode: true, " + hundred + "}":                                     "At most 100 requests per hour for each owner (sliding window counter). In shadow: it never denies.",
		"{key: owner, quota_mode: true, " + hundred + "}":                                      "At most 100 requests per hour for each owner (sliding window counter). Quota: it denies only if all quotas of a request do.",
		"{key: owner, rate_limit: {unit: hour, requests_per_unit: 100, override: {max: 500}}}": "At most 100 requests per hour for each owner (sliding window counter). A request or a credential can bring its own limit, up to 500 per hour.",
	} {
		r := rulesOf(t, "  - "+rule).All()[0]
		if got := Sentence(r, &r.Limits[0]); got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", rule, got, want)
		}
	}
}

// TestSentenceOfEach writes the limits of all algorithms and units.
func TestSentenceOfEach(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, a := range bucket.Algorithms {
		for _, u := range descriptors.Units {
			requests := int64(7)
			r := ratelimit.NewRules([]ratelimit.Domain{{Name: "shop", Descriptors: []ratelimit.Node{{
				Key: "owner", RateLimit: &ratelimit.Limit{Unit: u, Requests: &requests, Algorithm: a},
			}}}}, ratelimit.RulesOptions{}).All()[0]
			got := Sentence(r, &r.Limits[0])
			if want := "At most 7 requests per " + u.String() + " for each owner ("; got[:len(want)] != want || seen[got] {
				t.Errorf("%s, %s: %s", a, u, got)
			}
			seen[got] = true
		}
	}
}
