package page

import (
	"bytes"
	"cmp"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/page"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
)

const shop = `domain: shop
descriptors:
  - key: owner
    rate_limit: {name: per-owner, unit: minute, requests_per_unit: 600, algorithm: token_bucket, burst: 50}
  - {key: path, value: /v1/search, rate_limit: {name: search, unit: second, requests_per_unit: 20}}
  - key: path
    value: /v1/orders/*
    descriptors:
      - {key: owner, shadow_mode: true, rate_limit: {name: orders, unit: hour, requests_per_unit: 1000}}
  - key: plan
    value: free
    descriptors: [{key: owner, rate_limit: {name: free-plan, unit: day, requests_per_unit: 5000}}]
`

// anHour returns a State of rules that have decided requests for an hour.
func anHour(t *testing.T) *page.State {
	t.Helper()
	set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(shop)}}, file.Config{})
	if problems.HasErrors() {
		t.Fatal(problems.Err())
	}
	all := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
	var h page.History
	now, random := time.Date(2026, 3, 2, 14, 0, 0, 0, time.UTC), rand.New(rand.NewPCG(1, 2))
	count := func(t *ratelimit.Tally, n float64) {
		for range int(n * (0.8 + 0.4*random.Float64())) {
			t.Add(1)
		}
	}
	for i := range 62 {
		h.Tick(all, now)
		wave := 1 + 0.6*math.Sin(float64(i)/9)
		for k, r := range all.All() {
			c := r.Limits[0].Counters
			count(&c.Allowed, []float64{2400, 900, 240, 60}[k]*wave)
			if k == 1 && i > 38 && i < 52 {
				count(&c.Denied, 500)
			}
			if k == 2 && i%17 > 11 {
				count(&c.ShadowDenied, 80)
			}
		}
		now = now.Add(time.Minute)
	}
	s := &page.State{
		Title: "Overview", Path: "/", Now: now, Build: "v0.9.0", Ready: true,
		Source: []page.Figure{
			{Name: "Source", Value: "/etc/extauthz/rules"},
			{Name: "Generation", Value: "0c6f1e27a9d4", Meaning: "active since 2026-03-02T14:15:00Z"},
			{Name: "Added by the last reload", Value: "shop.plan_free.owner"}, {Name: "Removed", Value: "none"},
			{Name: "Changed", Value: "shop.path_/v1/search"},
		},
		Stores: []page.Figure{
			{Name: "Redis", Value: "redis.shop.svc:6379", Meaning: "answers"},
			{Name: "Last known buckets", Value: "18204", Meaning: "of at most 1000000"},
			{Name: "Replicas", Value: "3", Meaning: "divide limits while Redis does not decide"},
			{Name: "Admitted without Redis", Value: "412", Meaning: "units; Redis has charged 412 since"},
			{Name: "Owing buckets", Value: "0", Meaning: "wait until Redis charges them"},
		},
	}
	s.Keys = &inspect.Top{ClientValues: true}
	s.Keys.Keys = []ratelimit.HotKey{
		{Domain: "shop", Rule: "path_/v1/search", Limit: "search", Entries: "path=/v1/search", State: ratelimit.HotOver,
			Used: 20, Capacity: 20, DeniedSince: now.Add(-9 * time.Second), Denied: 61},
		{Domain: "shop", Rule: "path_/v1/orders/*.owner", Limit: "orders", Entries: "path=/v1/orders/7,owner=bob",
			Shadow: true, State: ratelimit.HotOver, Used: 1000, Capacity: 1000,
			DeniedSince: now.Add(-7 * time.Minute), Denied: 412},
		{Domain: "shop", Rule: "owner", Limit: "per-owner", Entries: "owner=ann", State: ratelimit.HotNear,
			Used: 47, Capacity: 50},
	}
	s.Rules.FindBusiest(&page.Active{Rules: all.All(), History: &h, Now: now, Hide: rules.Mask})
	return s
}

// TestPictures takes the pictures of docs/pictures.
func TestPictures(t *testing.T) {
	s := anHour(t)
	overview := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		page.New().Write(w, s)
	}))
	defer overview.Close()
	real, json := serve(t, shop)
	for range 3 {
		ask(t, json, "plan=free,owner=ann")
	}
	p := open(t)
	for _, c := range []struct {
		name, address string
		view
	}{
		{"page-overview.png", overview.URL, view{"light", 1000, "light"}},
		{"page-narrow.png", overview.URL, view{"dark", 360, "dark"}},
		{"page-explain.png", real + "/ask?domain=shop&descriptor=plan%3Dfree%0Aowner%3Dann", view{"light", 1000, "light"}},
	} {
		p.show(c.view, c.address)
		p.check(c.name)
		picture := p.picture(c.name == "page-overview.png")
		if !*update {
			continue
		}
		decoded, err := png.Decode(bytes.NewReader(picture))
		if err != nil {
			t.Fatal(err)
		}
		var small bytes.Buffer
		if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, fewColours(decoded)); err != nil {
			t.Fatal(err)
		}
		if small.Len() > 150_000 {
			t.Errorf("%s has %d bytes", c.name, small.Len())
		}
		file := filepath.Join(testenv.RepoRoot(t), "docs", "pictures", c.name)
		if err := os.WriteFile(file, small.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// fewColours returns a picture in its 256 most common colours.
func fewColours(m image.Image) image.Image {
	counts := map[color.Color]int{}
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			counts[m.At(x, y)]++
		}
	}
	colours := slices.Collect(maps.Keys(counts))
	slices.SortFunc(colours, func(a, b color.Color) int { return cmp.Compare(counts[b], counts[a]) })
	few := image.NewPaletted(m.Bounds(), colours[:min(len(colours), 256)])
	draw.Draw(few, m.Bounds(), m, image.Point{}, draw.Src)
	return few
}
