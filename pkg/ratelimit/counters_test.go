package ratelimit_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// counted is what counters hold, by the names of envoyproxy/ratelimit.
type counted struct{ Total, Within, Over, Near, Shadow uint64 }

func hitsOf(c *ratelimit.Counters) counted {
	shadow := c.ShadowDenied.Hits()
	return counted{
		Total:  c.Allowed.Hits() + c.Denied.Hits() + shadow + c.Fitting.Load(),
		Within: c.Allowed.Hits(), Over: c.Denied.Hits() + shadow, Near: c.Near.Load(), Shadow: shadow,
	}
}

// count counts hits on a bucket as envoyproxy/ratelimit does. The hits before are those of the bucket.
func (c *counted) count(before, hits, limit uint64, ratio float32, shadow bool) {
	near, after := uint64(float32(limit)*ratio), before+hits
	c.Total += hits
	switch {
	case after <= limit:
		c.Within += hits
		if after > near {
			c.Near += min(hits, after-near)
		}
		return
	case before >= limit:
		c.Over += hits
	default:
		c.Over += after - limit
		c.Near += limit - max(near, before)
	}
	if shadow {
		c.Shadow = c.Over
	}
}

// TestHitsAreCountedAsInRatelimit sends random hits to limits with different ratios.
func TestHitsAreCountedAsInRatelimit(t *testing.T) {
	t.Parallel()
	for _, mode := range []struct{ shadow, strict bool }{{}, {shadow: true}, {strict: true}, {true, true}} {
		for _, ratio := range []float32{0.8, 0.33, 1} {
			for _, limit := range []uint64{0, 1, 10, 33} {
				t.Run(fmt.Sprintf("%d of %g, %+v", limit, ratio, mode), func(t *testing.T) {
					cfg := ratelimit.Config{NearLimitRatio: ratio, Strict: mode.strict}
					limiter, rules := newLimiter(t, cfg, ratelimit.RulesOptions{}, fmt.Sprintf(`
domain: shop
descriptors: [{key: k, shadow_mode: %t, rate_limit: {unit: year, requests_per_unit: %d, algorithm: fixed_window}}]`,
						mode.shadow, limit))
					var want counted
					used := uint64(0)
					for range 30 {
						hits := rand.Uint64N(limit + 3)
						if hits == 0 {
							hits = 1
						}
						decide(t, limiter, ratelimit.Query{Domain: "shop", Hits: hits, Descriptors: []descriptors.Descriptor{
							{Entries: []descriptors.Entry{{Key: "k", Value: "v"}}},
						}})
						want.count(used, hits, limit, ratio, mode.shadow)
						if used+hits <= limit || mode.strict { // otherwise a denied request charges nothing
							used += hits
						}
					}
					if diff := cmp.Diff(want, hitsOf(rules.All()[0].Limits[0].Counters)); diff != "" {
						t.Errorf("(-want +got)\n%s", diff)
					}
				})
			}
		}
	}
}

// TestPeeksAndRefundsAreNoHits checks that they are counted as descriptors only.
func TestPeeksAndRefundsAreNoHits(t *testing.T) {
	t.Parallel()
	limiter, rules := newLimiter(t, ratelimit.Config{}, ratelimit.RulesOptions{},
		"{domain: test, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 1}}]}")
	c := rules.All()[0].Limits[0].Counters
	for _, d := range []string{"k=v", "k=v hits=0", "k=v hits=1 refund", "k=v hits=0"} {
		decide(t, limiter, query(t, d))
	}
	if diff := cmp.Diff(counted{Total: 1, Within: 1, Near: 1}, hitsOf(c)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if allowed, denied := c.Allowed.Descriptors(), c.Denied.Descriptors(); allowed != 3 || denied != 1 {
		t.Errorf("%d descriptors allowed, %d denied, want 3 and 1", allowed, denied)
	}
}

// TestDryQueriesChangeNothing sends dry queries beside others in one batch: the others are decided as without them, and
// only they are counted.
func TestDryQueriesChangeNothing(t *testing.T) {
	t.Parallel()
	missed := 0
	limiter, rules := newLimiter(t, ratelimit.Config{
		Missed: func(*ratelimit.Rules, string, []descriptors.Entry) { missed++ },
	}, ratelimit.RulesOptions{}, "{domain: test, descriptors: [{key: k, rate_limit: {unit: year, requests_per_unit: 2}}]}")
	var queries []ratelimit.Query
	for _, d := range []string{"k=v", "k=v", "k=v", "k=v", "k=v", "other=v"} {
		queries = append(queries, query(t, d))
		queries[len(queries)-1].Dry = len(queries)%2 == 0
	}
	results := make([]ratelimit.Result, len(queries))
	limiter.DecideAll(t.Context(), queries, results)
	var got []string
	for i := range results {
		text := fmt.Sprint(results[i].Allowed)
		for _, a := range results[i].Limits {
			text += fmt.Sprint(" ", a.Decision.Remaining)
			if a.Bucket != nil {
				text += fmt.Sprint(" used ", a.Bucket.Used)
			}
		}
		got = append(got, text)
	}
	want := []string{"true 1", "true 0 used 1", "true 0", "false 0 used 2", "false 0", "true"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	c := rules.All()[0].Limits[0].Counters
	if allowed, denied := c.Allowed.Descriptors(), c.Denied.Descriptors(); allowed != 2 || denied != 1 || missed != 0 {
		t.Errorf("%d descriptors allowed, %d denied, %d missed; want 2, 1 and 0", allowed, denied, missed)
	}
	if decided := limiter.Totals().Decided[ratelimit.FromStore].Load(); decided != 3 {
		t.Errorf("%d requests are counted as decided, want 3", decided)
	}
}

// TestShadowBesideIsCounted checks that a limit in shadow beside others counts only what it would have denied, under
// its own name. The others count as they do without it.
func TestShadowBesideIsCounted(t *testing.T) {
	t.Parallel()
	limiter, rules := newLimiter(t, ratelimit.Config{}, ratelimit.RulesOptions{}, `
domain: test
descriptors:
  - key: k
    limits:
      - {unit: year, requests_per_unit: 3, algorithm: fixed_window}
      - {unit: year, requests_per_unit: 1, algorithm: fixed_window, shadow_mode: true}`)
	for range 5 {
		decide(t, limiter, query(t, "k=v"))
	}
	type series struct {
		Limit                         string
		Beside                        bool
		Allowed, Denied, ShadowDenied uint64
	}
	got := map[series]bool{}
	rules.EachCounters(func(s ratelimit.Series, c *ratelimit.Counters) {
		got[series{s.Limit, s.Beside, c.Allowed.Hits(), c.Denied.Hits(), c.ShadowDenied.Hits()}] = true
	})
	want := map[series]bool{{"k", false, 3, 2, 0}: true, {"k-1-a-1-year", true, 0, 0, 4}: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMetricValues checks that clients cannot make more names than RulesOptions.MetricValues for each rule, nor long
// ones, and that counters go on when rules are loaded again.
func TestMetricValues(t *testing.T) {
	t.Parallel()
	const text = `
domain: test
descriptors:
  - key: user
    detailed_metric: true
    limits: [{unit: year, requests_per_unit: 100}, {name: small, unit: day, requests_per_unit: 2}]
  - key: region
    value_to_metric: true
    descriptors: [{key: path, rate_limit: {unit: year, requests_per_unit: 100}}]
  - {key: plain, rate_limit: {unit: year, requests_per_unit: 100}}
`
	limiter, rules := newLimiter(t, ratelimit.Config{}, ratelimit.RulesOptions{MetricValues: 2}, text)
	for i := range 5 {
		decide(t, limiter, query(t, fmt.Sprintf("user=u%d", i)))
		decide(t, limiter, query(t, fmt.Sprintf("region=r%d>path=p%d", i, i)))
		decide(t, limiter, query(t, fmt.Sprintf("plain=%d", i)))
	}
	decide(t, limiter, query(t, "user="+strings.Repeat("long", 100)))
	want := map[string]uint64{
		"user_u0 small": 1, "user_u1 small": 1, "user_other small": 4,
		"region_r0.path region.path": 1, "region_r1.path region.path": 1, "region_other.path region.path": 3,
		"plain plain": 5,
	}
	if diff := cmp.Diff(want, allowed(rules)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	again := ratelimit.NewRules(parse(t, text), ratelimit.RulesOptions{MetricValues: 2, Before: rules})
	if diff := cmp.Diff(want, allowed(again)); diff != "" {
		t.Errorf("loaded again (-want +got)\n%s", diff)
	}
}

// allowed returns the allowed descriptors by rule and limit, except those without any.
func allowed(r *ratelimit.Rules) map[string]uint64 {
	n := make(map[string]uint64)
	r.EachCounters(func(s ratelimit.Series, c *ratelimit.Counters) {
		if allowed := c.Allowed.Descriptors(); allowed > 0 {
			n[s.Rule+" "+s.Limit] += allowed
		}
	})
	return n
}

func newLimiter(t *testing.T, cfg ratelimit.Config, o ratelimit.RulesOptions, text string) (*ratelimit.Limiter,
	*ratelimit.Rules) {
	t.Helper()
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	rules := ratelimit.NewRules(parse(t, text), o)
	cfg.Store, cfg.Rules = store, func() *ratelimit.Rules { return rules }
	return ratelimit.New(cfg), rules
}

func parse(t *testing.T, text string) []ratelimit.Domain {
	t.Helper()
	set, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(text)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	return set.Domains
}

// TestSum adds up the counters of rules with one limit, with values in metrics, and with a limit in shadow beside
// others.
func TestSum(t *testing.T) {
	t.Parallel()
	limiter, rules := newLimiter(t, ratelimit.Config{}, ratelimit.RulesOptions{}, `
domain: shop
descriptors:
  - {key: one, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: values, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: beside, limits: [{unit: year, requests_per_unit: 4}, {unit: day, requests_per_unit: 1, shadow_mode: true}]}
  - {key: free, rate_limit: {unlimited: true}}`)
	for range 5 {
		for _, rule := range rules.All() {
			for _, value := range []string{"a", "b"} {
				decide(t, limiter, ratelimit.Query{Domain: "shop", Hits: 1, Descriptors: []descriptors.Descriptor{
					{Entries: []descriptors.Entry{{Key: rule.Name, Value: value}}},
				}})
			}
		}
	}
	got := map[string]ratelimit.Sum{}
	for _, rule := range rules.All() {
		got[rule.Name] = rule.Sum()
	}
	if diff := cmp.Diff(map[string]ratelimit.Sum{
		"one": {Requests: 10, Denied: 6}, "values": {Requests: 10, Denied: 6}, "shadow": {Requests: 10, ShadowDenied: 6},
		"beside": {Requests: 10, Denied: 2, ShadowDenied: 8}, "free": {},
	}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
