package file

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// perMinute returns a limit with the keys of envoyproxy/ratelimit only.
func perMinute(requests int64) ratelimit.Limit {
	return ratelimit.Limit{Unit: descriptors.Minute, Requests: &requests}
}

func TestParseBuildsTheTree(t *testing.T) {
	one := func(l ratelimit.Limit) *ratelimit.Limit { return &l }
	named := func(l ratelimit.Limit, name string) *ratelimit.Limit {
		l.Name = name
		return &l
	}
	for _, c := range []struct {
		name, yaml string
		want       []ratelimit.Node
	}{
		{
			name: "descriptors without limits",
			yaml: `[{key: a}, {key: b, value: c}]`,
			want: []ratelimit.Node{{Key: "a"}, {Key: "b", Value: "c"}},
		},
		{
			name: "an empty value means the same as no value",
			yaml: `[{key: a, value: ""}, {key: b, value: }, {key: c, value: ~}]`,
			want: []ratelimit.Node{{Key: "a"}, {Key: "b"}, {Key: "c"}},
		},
		{
			name: "keys and values may look like numbers or bools",
			yaml: `[{key: 5, value: 5}, {key: true, value: yes}, {key: a, value: 1.50}, {key: b, value: 010},
				{key: c, value: "é\t\x41"}]`,
			want: []ratelimit.Node{
				{Key: "5", Value: "5"}, {Key: "true", Value: "yes"}, {Key: "a", Value: "1.50"},
				{Key: "b", Value: "010"}, {Key: "c", Value: "é\tA"},
			},
		},
		{
			name: "a plain limit",
			yaml: `[{key: a, rate_limit: {unit: MiNuTe, requests_per_unit: 5}}]`,
			want: []ratelimit.Node{{Key: "a", RateLimit: one(perMinute(5))}},
		},
		{
			name: "every key of a limit",
			yaml: `[{key: a, rate_limit: {name: n, unit: second, unit_multiplier: 6, requests_per_unit: 5,
				algorithm: leaky_bucket, burst: 70, count_denied: true, on_store_error: allow, hash_tag: a, override: {max: 9,
				algorithm: token_bucket, burst: 8, name: o}, max_delay: 1m, problem: {type: t, title: u, detail: v}}}]`,
			want: []ratelimit.Node{{Key: "a", RateLimit: &ratelimit.Limit{
				Name: "n", Unit: descriptors.Second, Multiplier: 6, Requests: new(int64(5)),
				Algorithm: bucket.LeakyBucket, Burst: 70, CountDenied: new(true), OnStoreError: ratelimit.Allow, HashTag: "a",
				Override: &ratelimit.Override{Max: 9, Algorithm: bucket.TokenBucket, Burst: 8, Name: "o"}, MaxDelay: time.Minute,
				Problem: &ratelimit.ProblemDetail{Type: "t", Title: "u", Detail: "v"},
			}}},
		},
		{
			name: "several limits",
			yaml: `[{key: a, limits: [{unit: minute, requests_per_unit: 5},
				{unit: minute, requests_per_unit: 9, algorithm: fixed_window, count_denied: off}]}]`,
			want: []ratelimit.Node{{Key: "a", Limits: []ratelimit.Limit{perMinute(5), {
				Unit: descriptors.Minute, Requests: new(int64(9)), Algorithm: bucket.FixedWindow, CountDenied: new(false),
			}}}},
		},
		{
			name: "an unlimited rule that replaces limits",
			yaml: `[{key: a, rate_limit: {unlimited: true, name: vip, replaces: [{name: b}, {name: b2}]}},
				{key: b, rate_limit: {unit: minute, requests_per_unit: 1, name: b}},
				{key: b2, rate_limit: {unit: minute, requests_per_unit: 1, name: b2}}]`,
			want: []ratelimit.Node{
				{Key: "a", RateLimit: &ratelimit.Limit{
					Unlimited: true, Name: "vip", Replaces: []ratelimit.Replaced{{Name: "b"}, {Name: "b2"}},
				}},
				{Key: "b", RateLimit: named(perMinute(1), "b")},
				{Key: "b2", RateLimit: named(perMinute(1), "b2")},
			},
		},
		{
			name: "the flags of a descriptor, as bools of YAML 1.1",
			yaml: `[{key: a, value: "x*", shadow_mode: yes, quota_mode: On, detailed_metric: TRUE, value_to_metric: y,
				share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 1}}]`,
			want: []ratelimit.Node{{
				Key: "a", Value: "x*", Shadow: true, Quota: true, DetailedMetric: true, ValueToMetric: true,
				ShareThreshold: true, RateLimit: one(perMinute(1)),
			}},
		},
		{
			name: "nested descriptors",
			yaml: `[{key: a, descriptors: [{key: b, descriptors: [{key: c}]}, {key: d}]}]`,
			want: []ratelimit.Node{{Key: "a", Descriptors: []ratelimit.Node{
				{Key: "b", Descriptors: []ratelimit.Node{{Key: "c"}}}, {Key: "d"},
			}}},
		},
		{
			name: "metadata",
			yaml: `[{key: a, metadata: {s: text, q: "5", i: -5, u: 18446744073709551615, f: 1.5, e: 1e3, b: no, n: ~,
				d: 2026-01-02, x: 0x10, inf: -.inf, l: [1, {m: {}}], 5: five}}]`,
			want: []ratelimit.Node{{Key: "a", Metadata: map[string]any{
				"s": "text", "q": "5", "i": int64(-5), "u": uint64(math.MaxUint64), "f": 1.5, "e": 1000.0, "b": false,
				"n": nil, "d": "2026-01-02", "x": int64(16), "inf": math.Inf(-1),
				"l": []any{int64(1), map[string]any{"m": map[string]any{}}}, "5": "five",
			}}},
		},
		{
			name: "a key without a value means the same as no key",
			yaml: `[{key: a, value: , rate_limit: , limits: , descriptors: , metadata: {}, shadow_mode: }]`,
			want: []ratelimit.Node{{Key: "a", Metadata: map[string]any{}}},
		},
		{
			name: "an alias has the value of its anchor",
			yaml: `[{key: a, rate_limit: &l {unit: minute, requests_per_unit: 5}}, {key: b, rate_limit: *l}]`,
			want: []ratelimit.Node{{Key: "a", RateLimit: one(perMinute(5))}, {Key: "b", RateLimit: one(perMinute(5))}},
		},
		{
			name: "an anchor may be defined again",
			yaml: `[{key: &k a, value: *k}, {key: &k b, value: *k}]`,
			want: []ratelimit.Node{{Key: "a", Value: "a"}, {Key: "b", Value: "b"}},
		},
		{
			name: "a merge key adds absent keys, and the first of several wins",
			yaml: `[{key: a, rate_limit: &a {unit: minute, requests_per_unit: 5, name: x}},
				{key: b, rate_limit: {<<: *a, requests_per_unit: 6}},
				{key: c, rate_limit: {<<: [{requests_per_unit: 7}, *a]}}]`,
			want: []ratelimit.Node{
				{Key: "a", RateLimit: named(perMinute(5), "x")},
				{Key: "b", RateLimit: named(perMinute(6), "x")},
				{Key: "c", RateLimit: named(perMinute(7), "x")},
			},
		},
		{
			name: "a merge key in quotes is an ordinary key",
			yaml: `[{key: a, metadata: {"<<": {b: c}}}]`,
			want: []ratelimit.Node{{Key: "a", Metadata: map[string]any{"<<": map[string]any{"b": "c"}}}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, text := range []string{
				"domain: d\ndescriptors: " + c.yaml,
				"\ufeff---\r\ndomain: d\r\ndescriptors: " + c.yaml + "\r\n...\r\n",
			} {
				set, problems := Parse([]File{{Name: "f", Content: []byte(text)}}, Config{})
				if problems.HasErrors() {
					t.Fatal(problems)
				}
				want := []ratelimit.Domain{{Name: "d", Descriptors: c.want}}
				if diff := cmp.Diff(want, withoutPositions(set.Domains)); diff != "" {
					t.Errorf("%s\nwant (-) and got (+):\n%s", text, diff)
				}
			}
		})
	}
}

func withoutPositions(domains []ratelimit.Domain) []ratelimit.Domain {
	var strip func(nodes []ratelimit.Node)
	strip = func(nodes []ratelimit.Node) {
		for i := range nodes {
			nodes[i].Position = ""
			if l := nodes[i].RateLimit; l != nil {
				l.Position = ""
			}
			for j := range nodes[i].Limits {
				nodes[i].Limits[j].Position = ""
			}
			strip(nodes[i].Descriptors)
		}
	}
	for i := range domains {
		domains[i].Position = ""
		strip(domains[i].Descriptors)
	}
	return domains
}

// Nested aliases and deep nesting are errors. They do not exhaust memory or time.
func TestParseIsBounded(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("domain: d\ndescriptors:\n- key: a\n  metadata:\n    a0: &a0 [x]\n")
	for i := range 30 {
		bomb.WriteString(strings.NewReplacer("N", string(rune('a'+i%26))+strings.Repeat("z", i), "P", previous(i)).
			Replace("    N: &N [*P, *P]\n"))
	}
	for _, c := range []struct{ name, text, want string }{
		{"aliases", bomb.String(), "too many values"},
		{"brackets", "domain: d\ndescriptors: " + strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
			"nested too deeply"},
		{"open brackets", strings.Repeat("[", 1<<20), "exceeded max depth"},
		{"dashes", strings.Repeat("- ", 1<<20), "exceeded max depth"},
		{"invalid UTF-8", "domain: \xff\n", "byte 0xff is not UTF-8"},
		{"a control character", "domain: a\x1b[31m\n", "control character U+001B"},
		{"a line break of YAML 1.1", "domain: a\u2028b\n", "control character U+2028"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, problems := Parse([]File{{Name: "f", Content: []byte(c.text)}}, Config{})
			if !strings.Contains(problems.Error(), c.want) || !problems.HasErrors() {
				t.Errorf("got:\n%s\nwant an error with %q", problems, c.want)
			}
		})
	}
}

func previous(i int) string {
	if i == 0 {
		return "a0"
	}
	return string(rune('a'+(i-1)%26)) + strings.Repeat("z", i-1)
}

// A JSON file may be one line of megabytes. The time must not grow with the square of its length.
func BenchmarkParseOneLongLine(b *testing.B) {
	descriptor := `{"key": "abcdef", "value": "N", "rate_limit": {"unit": "minute", "requests_per_unit": 100}}`
	var text strings.Builder
	text.WriteString(`{"domain": "d", "descriptors": [`)
	for i := range 20_000 {
		text.WriteString(strings.Replace(descriptor, "N", strconv.Itoa(i), 1) + ", ")
	}
	text.WriteString("]}")
	file := File{Name: "f", Content: []byte(text.String())}
	b.SetBytes(int64(len(file.Content)))
	for b.Loop() {
		if _, problems := Parse([]File{file}, Config{}); len(problems) > 0 {
			b.Fatal(problems)
		}
	}
}
