package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// watched is a limiter with a clock that stands still.
type watched struct {
	*ratelimit.Limiter
	now   time.Time
	rules *ratelimit.Rules
}

func newWatched(t *testing.T, rules string, cfg ratelimit.Config) *watched {
	t.Helper()
	w := &watched{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	store, err := memstore.New(memstore.Config{Clock: func() int64 { return w.now.UnixMicro() }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if cfg.Store == nil {
		cfg.Store = store
	}
	cfg.Fallback, cfg.Now = store, func() time.Time { return w.now }
	cfg.Rules = func() *ratelimit.Rules { return w.rules }
	w.Limiter = ratelimit.New(cfg)
	w.load(t, rules)
	return w
}

func (w *watched) load(t *testing.T, rules string) {
	t.Helper()
	parsed, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(rules)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	w.rules = ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{Before: w.rules})
}

// ask decides one descriptor and returns DeniedSince as seconds after the beginning, −1 for none.
func (w *watched) ask(t *testing.T, key, value string, q ratelimit.Query, d descriptors.Descriptor) float64 {
	t.Helper()
	d.Entries = []descriptors.Entry{{Key: key, Value: value}}
	q.Domain, q.Descriptors = "shop", []descriptors.Descriptor{d}
	results := make([]ratelimit.Result, 1)
	w.DecideAll(t.Context(), []ratelimit.Query{q}, results)
	if results[0].DeniedSince == 0 {
		return -1
	}
	return float64(results[0].DeniedSince-time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()) / 1e6
}

// lines returns the keys, one on each line.
func (w *watched) lines() string {
	var b strings.Builder
	for _, k := range w.Hot().Keys {
		fmt.Fprintf(&b, "%s %s/%s %s %d/%d", k.State, k.Rule, k.Limit, k.Entries, k.Used, k.Capacity)
		if k.Denied > 0 {
			fmt.Fprintf(&b, " denied %d since %s", k.Denied, k.DeniedSince.Format(time.TimeOnly))
		}
		if k.Shadow {
			b.WriteString(" (shadow)")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

const watchedRules = `
domain: shop
descriptors:
  - key: user
    limits:
      - {name: burst, unit: second, requests_per_unit: 2, algorithm: fixed_window}
      - {name: sustained, unit: hour, requests_per_unit: 4, algorithm: fixed_window}
  - {key: trial, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: closed, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: down, rate_limit: {unit: hour, requests_per_unit: 1, on_store_error: deny}}
`

// TestHotKeys sends requests to rules of several kinds. Each limit of a rule has its own runs, also the one that does
// not decide. A peek that is denied counts, a refund does not.
func TestHotKeys(t *testing.T) {
	t.Parallel()
	w := newWatched(t, watchedRules, ratelimit.Config{})
	none, zero := ratelimit.Query{}, uint64(0)
	for i, want := range []float64{-1, -1, 0.2, 0.2} {
		w.now = time.UnixMicro(1767225600_000000 + int64(i)*100_000).UTC()
		if got := w.ask(t, "user", "ann", none, descriptors.Descriptor{}); got != want {
			t.Errorf("request %d: denied since %v, want %v", i, got, want)
		}
	}
	w.ask(t, "user", "ann", none, descriptors.Descriptor{Negative: true, Hits: &zero})
	if got := w.ask(t, "user", "ann", none, descriptors.Descriptor{Hits: &zero}); got != 0.2 {
		t.Errorf("a peek: denied since %v, want 0.2", got)
	}
	w.ask(t, "user", "bob", none, descriptors.Descriptor{})
	for range 3 {
		if got := w.ask(t, "trial", "eve", none, descriptors.Descriptor{}); got != -1 {
			t.Errorf("in shadow: denied since %v, want none", got)
		}
	}
	w.ask(t, "closed", "joe", ratelimit.Query{Refused: true}, descriptors.Descriptor{})
	want := []string{
		"over user/burst user=ann 2/2 denied 3 since 00:00:00",
		"over trial/trial trial=eve 1/1 denied 2 since 00:00:00 (shadow)",
		"over closed/closed (refused requests) closed=joe 0/0 denied 1 since 00:00:00",
		"hot user/sustained user=ann 2/4", "hot user/burst user=bob 1/2", "hot user/sustained user=bob 1/4",
	}
	compareLines(t, "at once", want, w.lines())
	// In the next second, the burst is allowed again, and then the sustained limit denies.
	w.now = w.now.Add(time.Second)
	for i, want := range []float64{-1, -1, 1.3, 1.3} {
		if got := w.ask(t, "user", "ann", none, descriptors.Descriptor{}); got != want {
			t.Errorf("request %d of the next second: denied since %v, want %v", i, got, want)
		}
	}
	w.now = w.now.Add(time.Second)
	if got := w.ask(t, "user", "ann", none, descriptors.Descriptor{}); got != 1.3 {
		t.Errorf("denied since %v, want 1.3", got)
	}
	for _, line := range []string{
		"over user/sustained user=ann 4/4 denied 3 since 00:00:01\n", "hot user/burst user=ann 0/2\n",
	} {
		if !strings.Contains(w.lines(), line) {
			t.Errorf("no %q in\n%s", line, w.lines())
		}
	}
	// A limit with a new name has the same buckets. It is shown with the next request.
	w.load(t, strings.Replace(watchedRules, "name: sustained", "name: renamed", 1))
	if got := w.ask(t, "user", "ann", none, descriptors.Descriptor{}); got != 2.3 ||
		!strings.Contains(w.lines(), "over user/renamed user=ann 4/4 denied 1 since 00:00:02\n") {
		t.Errorf("a new name: denied since %v\n%s", got, w.lines())
	}
	// The keys stay when the rules are loaded again. Those of a rule that is gone are not shown.
	w.load(t, strings.Replace(strings.Replace(watchedRules, "key: closed", "key: other", 1), "shadow_mode: true, ", "", 1))
	if got := w.lines(); !strings.Contains(got, "over trial/trial trial=eve 1/1 denied 2 since 00:00:00\n") ||
		strings.Contains(got, "closed") {
		t.Errorf("after a reload:\n%s", got)
	}
}

// compareLines compares lines without their order.
func compareLines(t *testing.T, what string, want []string, got string) {
	t.Helper()
	count := map[string]int{}
	for _, line := range want {
		count[line]++
	}
	for line := range strings.Lines(got) {
		count[strings.TrimSuffix(line, "\n")]--
	}
	for line, n := range count {
		if n != 0 {
			t.Errorf("%s: %+d of %q in\n%s", what, -n, line, got)
		}
	}
}

// TestUndecidedIsNoDenial has a store that fails. What a policy decides shows nothing of a bucket.
func TestUndecidedIsNoDenial(t *testing.T) {
	t.Parallel()
	w := newWatched(t, watchedRules, ratelimit.Config{Store: failing{}})
	if got := w.ask(t, "down", "ann", ratelimit.Query{}, descriptors.Descriptor{}); got != -1 || w.lines() != "" {
		t.Errorf("denied since %v; the keys are %s", got, w.lines())
	}
	for i, want := range []float64{-1, -1, 0} { // the last known state decides
		if got := w.ask(t, "user", "ann", ratelimit.Query{}, descriptors.Descriptor{}); got != want {
			t.Errorf("request %d: denied since %v, want %v", i, got, want)
		}
	}
}

// TestLocalCacheDenials counts denials that the local cache of a strict limiter decides.
func TestLocalCacheDenials(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1, "+
		"algorithm: fixed_window}}]", ratelimit.Config{Strict: true, LocalCache: 1 << 20})
	for range 5 {
		w.ask(t, "user", "ann", ratelimit.Query{}, descriptors.Descriptor{})
	}
	compareLines(t, "strict", []string{"over user/user user=ann 1/1 denied 4 since 00:00:00"}, w.lines())
}

// TestShadowLimits counts what limits in shadow would deny: a rule in shadow, also with values in its name, a limit in
// shadow beside another, and all limits with SHADOW_MODE.
func TestShadowLimits(t *testing.T) {
	t.Parallel()
	const rules = `
domain: shop
descriptors:
  - {key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: b, shadow_mode: true, detailed_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - key: c
    limits:
      - {name: high, unit: hour, requests_per_unit: 3}
      - {name: low, unit: hour, requests_per_unit: 1, shadow_mode: true}
`
	for _, global := range []bool{false, true} {
		w := newWatched(t, rules, ratelimit.Config{Shadow: global})
		for _, key := range []string{"a", "b", "c"} {
			for i := range 4 {
				w.ask(t, key, fmt.Sprint(i%2), ratelimit.Query{}, descriptors.Descriptor{})
			}
			w.ask(t, key, "1", ratelimit.Query{}, descriptors.Descriptor{})
		}
		want := []ratelimit.ShadowLimit{
			{Domain: "shop", Rule: "a", Limit: "a", Requests: 5, Denied: 3},
			{Domain: "shop", Rule: "b", Limit: "b", Requests: 5, Denied: 3},
			{Domain: "shop", Rule: "c", Limit: "high", Requests: 5},
			{Domain: "shop", Rule: "c", Limit: "low", Requests: 5, Denied: 3},
		}
		if !global {
			want = append(want[:2], want[3])
		}
		if diff := cmp.Diff(want, w.ShadowLimits()); diff != "" {
			t.Errorf("SHADOW_MODE=%t (-want +got):\n%s", global, diff)
		}
	}
}

// failing is a store that cannot decide.
type failing struct{}

func (failing) Start(_ context.Context, _ []bucket.Request, outcomes []bucket.Outcome, done func()) {
	for i := range outcomes {
		outcomes[i] = bucket.Outcome{Err: errors.New("down")}
	}
	done()
}
