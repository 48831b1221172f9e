package ratelimit_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
)

// perMinute is a limit without mistakes.
func perMinute() ratelimit.Limit {
	return ratelimit.Limit{Unit: descriptors.Minute, Requests: new(int64(100))}
}

// with returns that limit after a change.
func with(change func(*ratelimit.Limit)) ratelimit.Limit {
	l := perMinute()
	change(&l)
	return l
}

// TestCheck has mistakes that only sources other than YAML files can make, and the paths of mistakes. The testdata of
// pkg/rules/file has the mistakes that people make in files.
func TestCheck(t *testing.T) {
	type nodes = []ratelimit.Node
	type limit = ratelimit.Limit
	limited := func(l limit) nodes { return nodes{{Key: "a", RateLimit: &l}} }
	for _, c := range []struct {
		name  string
		nodes nodes
		want  string // one line for each mistake: its path (with a # for a mistake of the key) and its message
	}{
		{"no mistake", limited(perMinute()), ""},
		{"a zero node", nodes{{}}, "descriptors[0]: descriptor has empty key"},
		{"a zero limit", limited(limit{}), `
			descriptors[0].rate_limit#: a rate limit without ${unit}
			warning: descriptors[0].rate_limit#: a rate limit without ${requests_per_unit} denies every request`},
		{"no limits at all", nodes{{Key: "a", Limits: []limit{}}}, "descriptors[0].limits#: ${limits} is empty"},
		{"an unknown unit", limited(with(func(l *limit) { l.Unit = 99 })),
			"descriptors[0].rate_limit.unit: unit 99 is unknown: want second, minute, hour, day, week, month or year"},
		{"an unknown algorithm", limited(with(func(l *limit) { l.Algorithm = 77 })),
			"descriptors[0].rate_limit.algorithm: " +
				"no algorithm: want one of " + strings.Join(bucket.Algorithm(0).Words(), ", ")},
		{"unknown words", limited(with(func(l *limit) { l.OnStoreError = 9 })),
			"descriptors[0].rate_limit.on_store_error: ${on_store_error} cannot be ${9}"},
		{"negative numbers", limited(with(func(l *limit) {
			l.Requests, l.Burst, l.Multiplier = new(int64(-1)), -2, -3
		})), `
			descriptors[0].rate_limit.unit_multiplier: ${unit_multiplier} cannot be ${-3}
			descriptors[0].rate_limit.burst: ${burst} cannot be ${-2}
			descriptors[0].rate_limit.requests_per_unit: ${requests_per_unit} cannot be ${-1}`},
		{"the largest numbers", limited(with(func(l *limit) {
			l.Requests, l.Multiplier = new(int64(math.MaxInt64)), math.MaxInt64
		})), `
			descriptors[0].rate_limit.unit_multiplier: a window of 9223372036854775807 minutes cannot be counted exactly: ` +
			`at most 40872953`},
		{"a negative override", limited(with(func(l *limit) { l.Override = &ratelimit.Override{Max: -4} })),
			"descriptors[0].rate_limit.override.max: ${override} without ${max}"},
		{"a negative burst of an override",
			limited(with(func(l *limit) { l.Override = &ratelimit.Override{Max: 4, Burst: -1} })),
			"descriptors[0].rate_limit.override.burst: ${burst} cannot be ${-1}"},
		{"the largest override", limited(with(func(l *limit) { l.Override = &ratelimit.Override{Max: math.MaxInt64} })),
			"descriptors[0].rate_limit.override.max: " +
				"9223372036854775807 requests cannot be counted exactly by sliding_window_counter: at most 4294967295"},
		{"an override with an unknown algorithm",
			limited(with(func(l *limit) { l.Override = &ratelimit.Override{Max: 4, Algorithm: 77} })),
			"descriptors[0].rate_limit.override.algorithm: " +
				"no algorithm: want one of " + strings.Join(bucket.Algorithm(0).Words(), ", ")},
		{"a negative delay",
			limited(with(func(l *limit) { l.Algorithm, l.MaxDelay = bucket.LeakyBucket, -time.Second })),
			"descriptors[0].rate_limit.max_delay: ${max_delay} cannot be ${-1s}"},
		{"a delay of nothing",
			limited(with(func(l *limit) { l.Algorithm, l.MaxDelay = bucket.LeakyBucket, time.Nanosecond })),
			"descriptors[0].rate_limit.max_delay: ${max_delay} is shorter than 600ms, the time of one request at this rate"},
		{"names that are not UTF-8", nodes{
			{Key: "a\xff", Value: "b\xff", RateLimit: new(with(func(l *limit) { l.Name = "c\xff" })),
				Metadata: map[string]any{"d": "\xff"}},
		}, `
			descriptors[0].key: ${a�} is not UTF-8
			descriptors[0].value: ${b�} is not UTF-8
			descriptors[0].rate_limit.name: limit name ${c�} cannot be in a header
			descriptors[0].metadata: ${metadata} has a value that an answer to Envoy cannot hold`},
		{"metadata that no YAML holds", nodes{
			{Key: "a", RateLimit: new(perMinute()), Metadata: map[string]any{"list": []any{map[string]any{"number": 5}}}},
			{Key: "b", RateLimit: new(perMinute()), Metadata: map[string]any{"list": []any{map[string]any{
				"number": int64(5), "nothing": nil}}}},
		}, "descriptors[0].metadata: ${metadata} has a value that an answer to Envoy cannot hold"},
		{"both kinds of limits", nodes{{Key: "a", RateLimit: new(perMinute()), Limits: []limit{}}},
			"descriptors[0].limits#: ${limits} beside ${rate_limit}"},
		{"unlimited among limits", nodes{{Key: "a", Limits: []limit{perMinute(), {Unlimited: true}}}},
			"descriptors[0].limits[1].unlimited#: ${unlimited} in ${limits}"},
		{"two limits of a kind",
			nodes{{Key: "a",
				Limits: []limit{perMinute(), {Unit: descriptors.Hour, Requests: new(int64(1))}, perMinute()}}},
			"descriptors[0].limits[2]: two limits of one descriptor share a bucket: " +
				"both are sliding_window_counter over 1 minute"},
		{"far below", nodes{{Key: "b", Descriptors: nodes{{Key: "c", Value: "d", RateLimit: new(perMinute())},
			{Key: "c", Value: "d", RateLimit: new(perMinute())}}}},
			"descriptors[0].descriptors[1]: duplicate descriptor composite key ${shop.b.c_d}"},
		{"neither a limit nor descriptors", nodes{{Key: "a"}, {Key: "b", Descriptors: nodes{{Key: "c"}}},
			{Key: "d", RateLimit: &limit{Unlimited: true}}}, `
			warning: descriptors[0]: this descriptor limits nothing: it has no limit and no ${descriptors}
			warning: descriptors[1].descriptors[0]: this descriptor limits nothing: it has no limit and no ${descriptors}`},
		{"the names of others",
			limited(with(func(l *limit) { l.Name, l.Replaces = "x", []ratelimit.Replaced{{"x"}, {}, {"y"}} })), `
			descriptors[0].rate_limit.replaces[0].name: replaces should not contain name of same descriptor: ${x}
			descriptors[0].rate_limit.replaces[1]: should not have an empty replaces entry
			warning: descriptors[0].rate_limit.replaces[2].name: no limit of domain ${shop} is named ${y}: ` +
				`there is nothing to replace`},
		{"modes without a limit",
			nodes{{Key: "a", Shadow: true, Quota: true, DetailedMetric: true, ValueToMetric: true}}, `
			warning: descriptors[0].shadow_mode#: ${shadow_mode} has no effect on a descriptor without a rate limit
			warning: descriptors[0].quota_mode#: ${quota_mode} has no effect on a descriptor without a rate limit
			warning: descriptors[0].detailed_metric#: ${detailed_metric} has no effect on a descriptor without a rate limit
			warning: descriptors[0]: this descriptor limits nothing: it has no limit and no ${descriptors}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := mistakes(ratelimit.Check([]ratelimit.Domain{{Name: "shop", Descriptors: c.nodes}},
				ratelimit.CheckOptions{})[0])
			if diff := cmp.Diff(lines(c.want), got); diff != "" {
				t.Errorf("want (-) and got (+):\n%s", diff)
			}
		})
	}
}

// TestCheckOfSeveralDomains checks mistakes that only several domains together have.
func TestCheckOfSeveralDomains(t *testing.T) {
	replaces := with(func(l *ratelimit.Limit) { l.Replaces = []ratelimit.Replaced{{"late"}} })
	late := with(func(l *ratelimit.Limit) { l.Name = "late" })
	domains := []ratelimit.Domain{
		{Name: "shop", Position: "one:1",
			Descriptors: []ratelimit.Node{{Key: "a", RateLimit: &replaces, Position: "one:3"}}},
		{Name: "bank", Descriptors: []ratelimit.Node{{Key: "a", RateLimit: &replaces}}},
		{Name: "shop", Descriptors: []ratelimit.Node{{Key: "a", RateLimit: &late}, {Key: "b", RateLimit: &late}}},
		{},
		{},
	}
	const nothing = "warning: descriptors[0].rate_limit.replaces[0].name: " +
		"no limit of domain ${%s} is named ${late}: there is nothing to replace"
	const empty = "domain: config file cannot have empty domain"
	for merge, want := range map[bool][]string{
		false: {
			fmt.Sprintf(nothing, "shop"), fmt.Sprintf(nothing, "bank"),
			"domain: duplicate domain ${shop} in config file", empty, empty,
		},
		true: {"", fmt.Sprintf(nothing, "bank"), "descriptors[0]: duplicate descriptor composite key ${shop.a}", empty,
			empty},
	} {
		all := ratelimit.Check(domains, ratelimit.CheckOptions{MergeDomains: merge})
		for i := range domains {
			if diff := cmp.Diff(lines(want[i]), mistakes(all[i])); diff != "" {
				t.Errorf("merge %t, domain %d: want (-) and got (+):\n%s", merge, i, diff)
			}
		}
		if hint := all[2][0].Hints[0]; !strings.HasPrefix(hint, "the first is at one:") {
			t.Errorf("merge %t: hint %q", merge, hint)
		}
	}
}

// TestCheckBoundsMistakes checks that a domain full of mistakes does not fill the memory with them.
func TestCheckBoundsMistakes(t *testing.T) {
	nodes := make([]ratelimit.Node, 20_000)
	for i := range nodes {
		nodes[i] = ratelimit.Node{Shadow: true} // an error and a warning
	}
	errors, warnings := 0, 0
	for _, m := range ratelimit.Check([]ratelimit.Domain{{Name: "d", Descriptors: nodes}}, ratelimit.CheckOptions{})[0] {
		if m.Warning {
			warnings++
		} else {
			errors++
		}
	}
	if errors != 10_000 || warnings != 10_000 {
		t.Errorf("%d errors and %d warnings, want 10000 of each", errors, warnings)
	}
}

// mistakes returns mistakes as the lines of a case.
func mistakes(list []ratelimit.Mistake) []string {
	var all []string
	for _, m := range list {
		line := m.Path
		if m.OnKey {
			line += "#"
		}
		if m.Warning {
			line = "warning: " + line
		}
		all = append(all, line+": "+m.Message)
	}
	return all
}

// lines returns the lines of a case. ${x} in them is `x`.
func lines(want string) []string {
	var all []string
	for line := range strings.Lines(strings.NewReplacer("${", "`", "}", "`").Replace(want)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

// TestCompile checks what a limit and the settings are compiled to.
func TestCompile(t *testing.T) {
	type limit = ratelimit.Limit
	options := ratelimit.RulesOptions{DefaultAlgorithm: bucket.TokenBucket, DefaultPolicy: ratelimit.Deny}
	for _, c := range []struct {
		name string
		limit
		o    ratelimit.RulesOptions
		want bucket.Limit
		also ratelimit.RuleLimit // without Limit, Name, Unit, UnitMultiplier and Policy
	}{
		{"the defaults", perMinute(), ratelimit.RulesOptions{},
			bucket.Limit{Requests: 100, Window: 60_000_000, Algorithm: bucket.SlidingWindowCounter},
			ratelimit.RuleLimit{OnStoreError: ratelimit.Local}},
		{"the settings", perMinute(), options,
			bucket.Limit{Requests: 100, Window: 60_000_000, Burst: 100, Algorithm: bucket.TokenBucket},
			ratelimit.RuleLimit{OnStoreError: ratelimit.Deny}},
		{"all fields of a limit", limit{
			Unit: descriptors.Second, Multiplier: 6, Requests: new(int64(5)), Algorithm: bucket.LeakyBucket, Burst: 70,
			CountDenied:  new(true),
			OnStoreError: ratelimit.Allow, HashTag: "a", Override: &ratelimit.Override{Max: 9},
			MaxDelay: 7 * time.Second,
			Replaces: []ratelimit.Replaced{{"x"}, {"y"}},
		}, options,
			bucket.Limit{Requests: 5, Window: 6_000_000, Burst: 70, Algorithm: bucket.LeakyBucket}, ratelimit.RuleLimit{
				CountDenied: new(true), OnStoreError: ratelimit.Allow, HashTag: "a", Override: &ratelimit.Override{Max: 9},
				MaxDelay: 6_000_000,
				Replaces: []string{"x", "y"},
			}},
		{"no denial is charged", with(func(l *limit) { l.CountDenied = new(false) }), ratelimit.RulesOptions{},
			bucket.Limit{Requests: 100, Window: 60_000_000, Algorithm: bucket.SlidingWindowCounter},
			ratelimit.RuleLimit{CountDenied: new(false), OnStoreError: ratelimit.Local}},
		{"what cannot be counted denies", limit{Unit: descriptors.Year, Multiplier: 1000, Requests: new(int64(5))},
			ratelimit.RulesOptions{},
			bucket.Limit{Window: 1_000_000, Algorithm: bucket.FixedWindow},
			ratelimit.RuleLimit{OnStoreError: ratelimit.Local}},
	} {
		rules := ratelimit.NewRules([]ratelimit.Domain{{Name: "d",
			Descriptors: []ratelimit.Node{{Key: "a", RateLimit: &c.limit}}}}, c.o)
		got := rules.All()[0].Limits[0]
		if got.Limit != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got.Limit, c.want)
		}
		said := func(l ratelimit.RuleLimit) string {
			return fmt.Sprint(l.CountDenied != nil, l.CountDenied != nil && *l.CountDenied,
				l.OnStoreError, l.HashTag, l.Override, l.MaxDelay, l.Replaces)
		}
		if said(got) != said(c.also) {
			t.Errorf("%s: %s, want %s", c.name, said(got), said(c.also))
		}
	}
}

// TestMaxDelayIsOfWholeUnits checks that a rounded MaxDelay is the time of as many whole units as fit the delay.
func TestMaxDelayIsOfWholeUnits(t *testing.T) {
	for _, requests := range []int64{1, 3, 7, 60, 999, 1_000_003, bucket.MaxRequests} {
		for _, delay := range []time.Duration{time.Microsecond, 123 * time.Millisecond, 7 * time.Second, time.Minute} {
			l := ratelimit.Limit{Unit: descriptors.Second, Requests: &requests, Algorithm: bucket.LeakyBucket,
				MaxDelay: delay}
			domains := []ratelimit.Domain{{Name: "d", Descriptors: []ratelimit.Node{{Key: "a", RateLimit: &l}}}}
			wrong := hasErrors(ratelimit.Check(domains, ratelimit.CheckOptions{}))
			units := delay.Microseconds() * requests / 1_000_000
			got := ratelimit.NewRules(domains, ratelimit.RulesOptions{}).All()[0].Limits[0].MaxDelay
			if wrong != (units == 0) || got > delay.Microseconds() || got*requests/1_000_000 != units {
				t.Errorf("%d a second, %s: wrong %t, %d µs are the time of %d units, want %d units in at most %s",
					requests, delay, wrong, got, got*requests/1_000_000, units, delay)
			}
		}
	}
}

func hasErrors(all [][]ratelimit.Mistake) bool {
	for _, mistakes := range all {
		for _, m := range mistakes {
			if !m.Warning {
				return true
			}
		}
	}
	return false
}

// FuzzCheck checks that rules without errors are counted as written. All rules, also those with errors, can be
// compiled and decide, and a limit that cannot be counted denies.
func FuzzCheck(f *testing.F) {
	f.Add(uint8(2), int64(1), int64(100), uint8(0), int64(0), uint8(0), uint8(0), int64(0), int64(0), "a", "x", "",
		uint8(0))
	f.Add(uint8(2), int64(0), int64(5), uint8(4), int64(9), uint8(2), uint8(1), int64(7), int64(30_000_000_000), "a*",
		"x", "y", uint8(3))
	f.Add(uint8(99), int64(-1), int64(-1), uint8(77), int64(-1), uint8(9), uint8(9), int64(-1), int64(-1), "", "", "",
		uint8(255))
	f.Add(uint8(6), int64(1<<62), int64(1<<62), uint8(0x80), int64(1<<62), uint8(3), uint8(1), int64(1<<62),
		int64(1<<62), "a", "b", "b", uint8(16))
	f.Fuzz(func(t *testing.T, unit uint8, multiplier, requests int64, algorithm uint8, burst int64, policy,
		override uint8,
		overrideMax, delay int64, key, name, other string, flags uint8) {
		flag := func(bit int) bool { return flags>>bit&1 == 1 }
		l := ratelimit.Limit{
			Unit: descriptors.Unit(unit), Multiplier: multiplier, Requests: &requests,
			Algorithm: bucket.Algorithm(algorithm), Burst: burst,
			Unlimited: flag(0), Name: name, OnStoreError: ratelimit.StoreErrorPolicy(policy), HashTag: other,
			MaxDelay: time.Duration(delay),
		}
		if override > 0 {
			l.Override = &ratelimit.Override{
				Max: overrideMax, Algorithm: bucket.Algorithm(override - 1), Burst: delay, Name: other,
			}
		}
		if other != "" {
			l.Replaces = []ratelimit.Replaced{{other}}
		}
		n := ratelimit.Node{Key: key, Value: other, Shadow: flag(1), Quota: flag(2), ShareThreshold: flag(3),
			DetailedMetric: flag(4)}
		if flag(5) {
			n.Limits = []ratelimit.Limit{l, perMinute()}
		}
		if flag(6) || !flag(5) {
			n.RateLimit = &l
		}
		n.Descriptors = []ratelimit.Node{{Key: other, RateLimit: &l}}
		domains := []ratelimit.Domain{{Name: name, Descriptors: []ratelimit.Node{n}}}
		wrong := hasErrors(ratelimit.Check(domains, ratelimit.CheckOptions{}))
		rules := ratelimit.NewRules(domains, ratelimit.RulesOptions{})
		for _, rule := range rules.All() {
			for _, compiled := range rule.Limits {
				denies := compiled.Limit == bucket.Limit{Window: 1_000_000, Algorithm: bucket.FixedWindow}
				switch {
				case rule.Unlimited && compiled.Limit == bucket.Limit{}:
				case compiled.Check() != nil:
					t.Errorf("%+v cannot be counted: %v", compiled.Limit, compiled.Check())
				case !wrong && denies && requests != 0:
					t.Errorf("Check accepts %+v, which denies everything", l)
				}
				if compiled.MaxDelay < 0 || compiled.MaxDelay > 60_000_000 {
					t.Errorf("delay %d of %+v", compiled.MaxDelay, l)
				}
			}
		}
		store, err := memstore.New(memstore.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		limiter := ratelimit.New(ratelimit.Config{
			Rules: func() *ratelimit.Rules { return rules }, Store: store, Fallback: store,
		})
		entries := []descriptors.Entry{{Key: key, Value: other}, {Key: other, Value: name}}
		brought := &descriptors.RequestLimit{RequestsPerUnit: uint32(requests), Unit: descriptors.Day}
		for _, d := range []descriptors.Descriptor{
			{Entries: entries[:1]}, {Entries: entries}, {Entries: entries, Limit: brought},
		} {
			res := decide(t, limiter, ratelimit.Query{
				Domain: name, Descriptors: []descriptors.Descriptor{d}, MaxHold: 1_000_000,
				CredentialLimit: &ratelimit.LimitSpec{Requests: requests, Unit: descriptors.Hour},
			})
			if res.Err != nil && name != "" {
				t.Errorf("%+v: %v", l, res.Err)
			}
		}
	})
}
