package telemetry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/statsd_exporter/pkg/mapper"
)

// text returns what a mapping makes of a statistic.
func (m *Mapping) text(stat string, kind mapper.MetricType) string {
	to := m.series(stat, kind)
	if to.drop {
		return "dropped"
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(to.labels)) {
		labels = append(labels, fmt.Sprintf("%s=%q", name, to.labels[name]))
	}
	return fmt.Sprintf("%s{%s} %g", to.name, strings.Join(labels, ","), to.scale)
}

// TestDefaultMapping has statistics and what the default mapping of envoyproxy/ratelimit makes of them, except that it
// gives over_limit_with_local_cache a name of its own for each rule.
func TestDefaultMapping(t *testing.T) {
	t.Parallel()
	m := DefaultMapping()
	for stat, want := range map[string]string{
		"ratelimit.service.rate_limit.shop.key.total_hits":             `total_hits{domain="shop",key1="key"}`,
		"ratelimit.service.rate_limit.shop.key_value.over_limit":       `over_limit{domain="shop",key1="key_value"}`,
		"ratelimit.service.rate_limit.shop.a_b.c_d.near_limit":         `near_limit{domain="shop",key1="a_b",key2="c_d"}`,
		"ratelimit.service.rate_limit.shop.a.b.c.d.within_limit":       `within_limit{domain="shop",key1="a",key2="b"}`,
		"ratelimit.service.rate_limit.shop.path_/a*.shadow_mode":       `shadow_mode{domain="shop",key1="path_/a*"}`,
		"ratelimit.service.rate_limit.shop.path_/a.b.total_hits":       `total_hits{domain="shop",key1="path_/a",key2="b"}`,
		"ratelimit.service.rate_limit.a.b.c.over_limit":                `over_limit{domain="a",key1="b",key2="c"}`,
		"ratelimit.service.rate_limit.shop.total_hits.total_hits":      `total_hits{domain="shop",key1="total_hits"}`,
		"ratelimit.service.rate_limit.a.k.over_limit_with_local_cache": `over_limit_with_local_cache{domain="a",key1="k"}`,
	} {
		want = "ratelimit_service_rate_limit_" + want + " 1"
		if got := m.text(stat, mapper.MetricTypeCounter); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", stat, got, want)
		}
	}
	for stat, want := range map[string]string{
		"ratelimit.service.config_load_success":              `ratelimit_service_config_load_success{}`,
		"ratelimit.service.config_load_error":                `ratelimit_service_config_load_error{}`,
		"ratelimit.service.global_shadow_mode":               `ratelimit_service_global_shadow_mode{}`,
		"ratelimit.service.call.should_rate_limit.x":         `ratelimit_service_should_rate_limit_error{err_type="x"}`,
		"ratelimit_server.Check.total_requests":              `ratelimit_service_total_requests{grpc_method="Check"}`,
		"ratelimit.service.rate_limit.shop.domain_not_found": `ratelimit_service_rate_limit_shop_domain_not_found{}`,
		"1.of ours-and-others":                               `_1_of_ours_and_others{}`,
	} {
		if got := m.text(stat, mapper.MetricTypeCounter); got != want+" 1" {
			t.Errorf("%s\ngot  %s\nwant %s", stat, got, want)
		}
	}
	const timer = "ratelimit_server.ShouldRateLimit.response_time"
	const seconds = `ratelimit_service_response_time_seconds{grpc_method="ShouldRateLimit"}`
	if got := m.text(timer, mapper.MetricTypeObserver); got != seconds+" 0.001" {
		t.Errorf("%s: %s", timer, got)
	}
	if got := m.WithoutScale().text(timer, mapper.MetricTypeObserver); got != seconds+" 1" {
		t.Errorf("in milliseconds: %s", got)
	}
}

// TestMapping has a mapping with what files of statsd_exporter can have.
func TestMapping(t *testing.T) {
	t.Parallel()
	m, err := ParseMapping([]byte(`
defaults: {timer_type: histogram, buckets: [0.1, 1], ttl: 1h}
mappings:
  - {match: 'hits\.(\w+)\.(.*)', match_type: regex, name: "hits_$1", labels: {rest: "${2}!"}}
  - {match: "hits.special.*", name: special_$1, timer_type: histogram, help: Text}
  - {match: "time.*", match_metric_type: timer, name: seconds, scale: 0.001}
  - {match: "secret.*", action: drop, name: none}
`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		stat string
		kind mapper.MetricType
		want string
	}{
		{"hits.shop.a.b", mapper.MetricTypeCounter, `hits_shop{rest="a.b!"} 1`},
		{"hits.special.a", mapper.MetricTypeCounter, `special_a{} 1`}, // globs precede
		{"time.x", mapper.MetricTypeObserver, `seconds{} 0.001`},
		{"time.x", mapper.MetricTypeCounter, `time_x{} 1`},
		{"secret.x", mapper.MetricTypeCounter, "dropped"},
		{"secret.x.y", mapper.MetricTypeCounter, "secret_x_y{} 1"}, // * is one level
	} {
		if got := m.text(c.stat, c.kind); got != c.want {
			t.Errorf("%s: got %s, want %s", c.stat, got, c.want)
		}
	}
}

// TestMappingMistakes has mistakes and the text of their errors. All mistakes are reported at once.
func TestMappingMistakes(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"mappings: [{match: a.b}]":          {`mapping 1 (match "a.b"): name: want the name of a metric`},
		"mappings: [{match: a b, name: x}]": {`mapping 1 (match "a b"): invalid match: a b`},
		"mappings: [{match: '(', match_type: regex, name: x}, {match: a, match_type: rgx, name: x}]": {
			"mapping 1 (match \"(\"): invalid regex ( in mapping: error parsing regexp", `line 1: invalid match type "rgx"`},
		"mappings: [{match: '(', match_type: regex, name: x}, {match: a b, name: x}]": {
			`mapping 1 (match "(")`, `mapping 2 (match "a b")`},
		"mappings: [{match: a, name: x, labels: {a-b: c}}]":       {`mapping 1 (match "a"): invalid label key: a-b`},
		"mappings: [{match: a, name: x, labels: {le: c}}]":        {`labels: "le" cannot be`},
		"mappings: [{match: a, name: go_goroutines}]":             {"name: go_goroutines is the name of another metric"},
		"mappings: [{match: a, name: x, action: remove}]":         {`line 1: invalid action type "remove"`},
		"mappings: [{match: a, name: x, match_metric_type: set}]": {`line 1: invalid metric type 'set'`},
		"mappings:\n  - match: a\n    nane: x":                    {"line 3", "nane"},
		"mappings: 5":                                             {"line 1"},
	} {
		_, err := ParseMapping([]byte(text))
		if err == nil {
			t.Errorf("%q: no error", text)
			continue
		}
		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %v, want %q", text, err, w)
			}
		}
	}
	if m, err := ParseMapping(nil); err != nil || m.text("a.b", mapper.MetricTypeCounter) != "a_b{} 1" {
		t.Errorf("an empty file: %v", err)
	}
}

// TestStatName has names whose characters would end a line or a level of a statistic.
func TestStatName(t *testing.T) {
	t.Parallel()
	got := map[string]string{}
	for _, name := range []string{
		"shop.ip_192.0.2.1", "shop.a:b|c", "shop.x\nforged:1|c", "shop.path_/a.b", "shop.é",
	} {
		got[name] = statName(name)
	}
	want := map[string]string{
		"shop.ip_192.0.2.1": "shop.ip_192_0_2_1", "shop.a:b|c": "shop.a_b_c", "shop.x\nforged:1|c": "shop.x_forged_1_c",
		"shop.path_/a.b": "shop.path_/a.b", "shop.é": "shop.é",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func FuzzParseMapping(f *testing.F) {
	f.Add(string(defaultMapping), "ratelimit.service.rate_limit.shop.key.total_hits")
	f.Add("mappings: [{match: '*', name: x$1, labels: {a: $2}}]", "a")
	f.Fuzz(func(t *testing.T, text, stat string) {
		m, err := ParseMapping([]byte(text))
		if err != nil {
			return
		}
		if to := m.series(stat, mapper.MetricTypeCounter); to.name != metricName(to.name) {
			t.Errorf("%q is not the name of a metric", to.name)
		}
	})
}
