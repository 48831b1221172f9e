package page

import (
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
)

var update = flag.Bool("update", false, "write testdata")

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// written returns a page, whose header must allow its own style and nothing else.
func written(t testing.TB, s *State) string {
	t.Helper()
	w := httptest.NewRecorder()
	New().Write(w, s)
	body := w.Body.String()
	_, style, _ := strings.Cut(body, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	sum := sha256.Sum256([]byte(style))
	want := "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) +
		"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
	if got := w.Header().Get("Content-Security-Policy"); w.Code != 200 || got != want {
		t.Fatalf("status %d, Content-Security-Policy %q, want %q:\n%s", w.Code, got, want, body)
	}
	for _, link := range regexp.MustCompile(`(?:href|action)="(.*?)"`).FindAllStringSubmatch(body, -1) {
		if !strings.HasPrefix(link[1], "/") && !strings.HasPrefix(link[1], "#") {
			t.Errorf("the page leads to %s", link[1])
		}
	}
	tags := strings.Join(regexp.MustCompile(`<[^>]*>`).FindAllString(body, -1), "\n")
	tags = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(tags, "")
	for _, no := range []string{"<script", "<link", "<img", "style=", "src=", " on"} {
		if strings.Contains(tags, no) {
			t.Errorf("the page has %q:\n%s", no, tags)
		}
	}
	return body
}

// count adds decisions to the counters of a rule.
func count(r *ratelimit.Rule, allowed, denied, shadow int) {
	c := r.Limits[0].Counters
	for range allowed {
		c.Allowed.Add(1)
	}
	for range denied {
		c.Denied.Add(1)
	}
	for range shadow {
		c.ShadowDenied.Add(1)
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	all := rulesOf(t, `
  - {key: owner, rate_limit: {unit: hour, requests_per_unit: 100}}
  - {key: path, value: /a/*, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: idle, rate_limit: {unit: minute, requests_per_unit: 5}}
`)
	var h History
	h.Tick(all, noon)
	count(all.All()[0], 90, 30, 0)
	h.Tick(all, noon.Add(time.Minute))
	count(all.All()[1], 0, 0, 60)
	s := &State{
		Title: "Overview", Path: "/", Now: noon.Add(2 * time.Minute), Build: "v1.2.3", Ready: true,
		Refused: "a.yaml:1:1: error: <b>", Source: []Figure{{"Source", "/rules", ""}},
		Stores: []Figure{{"Store", "memory", "this replica counts alone"}},
	}
	s.Rules.FindBusiest(&Active{all.All(), &h, s.Now, rules.Mask, nil})
	s.Keys = &inspect.Top{ClientValues: true}
	s.Keys.Keys = []ratelimit.HotKey{
		{Domain: "shop", Rule: "owner", Limit: "owner", Entries: "owner=<b>", ID: "0a1b", State: ratelimit.HotOver,
			Used: 100, Capacity: 100, DeniedSince: noon, Denied: 30},
		{Domain: "shop", Rule: "path", Limit: "path", ID: "2c3d", Shadow: true, State: ratelimit.HotOver,
			Used: 5, Capacity: 5, DeniedSince: noon, Denied: 60},
		{Domain: "shop", Rule: "owner", Limit: "owner", ID: "4e5f", State: ratelimit.HotNear, Used: 90, Capacity: 100},
		{Domain: "shop", Rule: "owner", Limit: "owner", ID: "unseen", State: ratelimit.HotOnly, Used: 1, Capacity: 100},
	}
	_, got, _ := strings.Cut(written(t, s), "</style>")
	file := filepath.Join("testdata", "overview.html")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the overview differs; -update writes it (-want +got):\n%s", diff)
	}
	var shadow History
	shadow.Shadow = true
	shadow.Tick(all, noon)
	count(all.All()[0], 90, 30, 0)
	s = &State{Title: "Overview", Path: "/", GlobalShadow: true, Keys: new(inspect.Top)}
	s.Rules.FindBusiest(&Active{all.All(), &shadow, noon, rules.Mask, nil})
	if page := written(t, s); strings.Contains(page, "% denied") || !strings.Contains(page, "25 % would be denied") ||
		!strings.Contains(page, "SHADOW_MODE is on") {
		t.Errorf("with SHADOW_MODE:\n%s", page)
	}
}

// TestManyRules shows 10,000 rules. A page has 100 of them, and a filter finds each.
func TestManyRules(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&b, "  - {key: path, value: /v1/%05d, rate_limit: {unit: minute, requests_per_unit: 5}}\n", i)
	}
	all := rulesOf(t, b.String()).All()
	var h History
	h.Tick(rulesOf(t, b.String()), noon)
	for _, c := range []struct {
		filter     string
		page       int
		rows, of   int
		first      string
		prev, next int
	}{
		{"", 0, 100, 10_000, "path_/v1/00000", 0, 2},
		{"", -7, 100, 10_000, "path_/v1/00000", 0, 2},
		{"", 2, 100, 10_000, "path_/v1/00100", 1, 3},
		{"", 100, 100, 10_000, "path_/v1/09900", 99, 0},
		{"", 1 << 40, 100, 10_000, "path_/v1/09900", 99, 0},
		{"SHOP.PATH_/v1/0999", 1, 10, 10, "path_/v1/09990", 0, 0},
		{"9", 35, 39, 3439, "path_/v1/09961", 34, 0},
		{"none", 3, 0, 0, "", 0, 0},
	} {
		s := &State{Title: "Rules", Path: "/rules", Rules: Rules{Filter: c.filter, Page: c.page}}
		r := &s.Rules
		r.Find(&Active{all, &h, noon, rules.Mask, nil})
		first := ""
		if r.Rows != nil {
			first = r.Rows[0].Name
		}
		if len(r.Rows) != c.rows || r.Matching != c.of || first != c.first || r.Previous != c.prev || r.Next != c.next {
			t.Errorf("%+v: %d rows of %d from %q, %d and %d", c, len(r.Rows), r.Matching, first, r.Previous, r.Next)
		}
		if page := written(t, s); len(page) > 60_000 {
			t.Errorf("%+v: the page has %d bytes", c, len(page))
		}
	}
	s := &State{Path: "/", Keys: new(inspect.Top)}
	s.Rules.FindBusiest(&Active{all, &h, noon, rules.Mask, nil})
	if page := written(t, s); len(page) > 12_000 {
		t.Errorf("the overview has %d bytes", len(page))
	}
	if kept := len(h.rules); kept != maxRules {
		t.Errorf("%d rules are kept, want %d", kept, maxRules)
	}
}

// TestHostileNames puts HTML into everything that a page shows.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)>`
	requests := int64(5)
	all := ratelimit.NewRules([]ratelimit.Domain{{Name: hostile, Descriptors: []ratelimit.Node{{
		Key: hostile, Value: hostile, RateLimit: &ratelimit.Limit{Name: hostile, Unit: 1, Requests: &requests},
	}}}}, ratelimit.RulesOptions{})
	var h History
	h.Tick(all, noon)
	count(all.All()[0], 1, 1, 1)
	for _, path := range []string{"/", "/rules", "/ask"} {
		s := &State{
			Title: hostile, Path: path, Build: hostile, Refused: hostile,
			Source: []Figure{{hostile, hostile, hostile}}, Stores: []Figure{{hostile, hostile, hostile}},
			Ask: Ask{
				Domain: hostile, Descriptor: hostile, Method: hostile, Host: hostile, Path: hostile, Error: hostile,
				Verdict: hostile, Text: hostile, Answer: hostile,
			},
			Rules: Rules{Filter: hostile}, Keys: new(inspect.Top),
		}
		s.Keys.Keys = []ratelimit.HotKey{{Domain: hostile, Rule: hostile, Limit: hostile, Entries: hostile, State: hostile}}
		s.Rules.Find(&Active{all.All(), &h, noon, rules.Mask, nil})
		if page := written(t, s); strings.Contains(page, "<script") || strings.Contains(page, "<img") ||
			!strings.Contains(page, "&lt;script&gt;") {
			t.Errorf("%s:\n%s", path, page)
		}
	}
}

// TestMasked shows no API key and no token that is in a rule by mistake.
func TestMasked(t *testing.T) {
	t.Parallel()
	const key = "ea_k7Ua3xyz_0123456789abcdefghijABCDEFGHIJ01234567"
	all := rulesOf(t, "  - {key: owner, value: "+key+", rate_limit: {unit: hour, requests_per_unit: 100}}\n").All()
	s := &State{Path: "/rules"}
	s.Rules.Find(&Active{all, new(History), noon, rules.Mask, nil})
	if page := written(t, s); strings.Contains(page, key[12:]) || !strings.Contains(page, "owner is ea_") {
		t.Errorf("the page has an API key:\n%s", page)
	}
	r := Rules{Filter: "0123456789abc"}
	if r.Find(&Active{all, new(History), noon, rules.Mask, nil}); r.Matching != 0 {
		t.Error("a filter finds an API key by its characters")
	}
}

// TestHistory counts for more than an hour, through a reload that removes a rule and brings another.
func TestHistory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const a, b, c = "  - {key: a, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
			"  - {key: b, value_to_metric: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n",
			"  - {key: c, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
		set, active := rulesOf(t, a+b), new(atomic.Pointer[ratelimit.Rules])
		active.Store(set)
		var h History
		done := make(chan struct{})
		h.Tick(set, time.Now())
		go func() { h.Run(t.Context(), active.Load); close(done) }()
		synctest.Wait()
		rule := set.All()[0]
		check := func(what string, requests, denied uint64, rate float64) {
			t.Helper()
			got := h.Of(rule, time.Now())
			if got == nil || got.Requests != requests || got.Denied != denied || got.Rate != rate {
				t.Errorf("%s: %+v, want %d requests, %d denied, %g a second", what, got, requests, denied, rate)
			}
		}
		check("at the start", 0, 0, 0)
		count(rule, 3, 1, 0)
		check("in the first second", 4, 1, 4)
		time.Sleep(30 * time.Second)
		check("after 30 s", 4, 1, 4./30)
		time.Sleep(60 * time.Second)
		count(rule, 5, 0, 0)
		check("after 90 s", 9, 1, 9./90)
		time.Sleep(57 * time.Minute)
		check("after 58 minutes", 9, 1, 0)
		time.Sleep(time.Minute)
		check("after 59 minutes", 9, 1, 0)
		time.Sleep(time.Minute)
		check("after an hour", 5, 0, 0)
		time.Sleep(time.Minute)
		check("after 61 minutes", 0, 0, 0)

		count(rule, 2, 0, 0)
		removed := set.All()[1]
		set = rulesOf(t, a+c) // its counters begin at 0
		active.Store(set)
		time.Sleep(time.Minute)
		if h.Of(removed, time.Now()) != nil {
			t.Error("a rule that was removed is kept")
		}
		rule = set.All()[1]
		count(rule, 0, 0, 7)
		if got := h.Of(rule, time.Now()); got == nil || got.ShadowDenied != 7 || got.Requests != 7 {
			t.Errorf("a new rule: %+v, want 7 requests", got)
		}
	})
}

// TestSpark draws an hour: 60 steps, as high as the share of the busiest minute, and at least one pixel for a request.
func TestSpark(t *testing.T) {
	t.Parallel()
	a := &Activity{Sum: ratelimit.Sum{Requests: 111, Denied: 10}}
	a.minutes[0] = ratelimit.Sum{Requests: 100}
	a.minutes[1] = ratelimit.Sum{Requests: 10, Denied: 10}
	a.minutes[59] = ratelimit.Sum{Requests: 1, ShadowDenied: 1}
	want := Spark{
		Requests: "M0 20V0h1V18h1V20h57V19h1V20z", Denied: "M0 20V20h1V18h1V20h57V19h1V20z",
		Text: "111 requests in the last hour, at most 100 in a minute; 10 denied, 0 would be",
	}
	if diff := cmp.Diff(want, a.Spark()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := new(Activity).Spark().Requests; got != "M0 20V20h60V20z" {
		t.Errorf("without requests: %s", got)
	}
}

// BenchmarkTick ends a minute of 10,000 rules.
func BenchmarkTick(b *testing.B) {
	var text strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&text, "  - {key: path, value: /v1/%05d, rate_limit: {unit: minute, requests_per_unit: 5}}\n", i)
	}
	all := rulesOf(b, text.String())
	var h History
	for b.Loop() {
		h.Tick(all, noon)
	}
}
