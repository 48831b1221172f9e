package service

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// pageOf returns a page of the debug listener, as a browser asks for it.
func pageOf(t *testing.T, debugAddr, path string) string {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+debugAddr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	if policy := res.Header.Get("Content-Security-Policy"); res.StatusCode != http.StatusOK ||
		!strings.HasPrefix(policy, "default-src 'none'; ") || !strings.HasPrefix(string(body), "<!doctype html>") {
		t.Fatalf("%s: status %d, policy %q\n%s", path, res.StatusCode, policy, body)
	}
	return string(body)
}

// TestPages shows the pages of services with each store: rules with rates, the stores, reloads and the form.
func TestPages(t *testing.T) {
	t.Parallel()
	const rules = "domain: shop\ndescriptors:\n" +
		"  - {key: tenant, rate_limit: {name: few, unit: hour, requests_per_unit: 2}}\n" +
		"  - {key: idle, rate_limit: {unit: hour, requests_per_unit: 2}}\n"
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			root := testenv.RulesRootWith(t, rules)
			var redis *testenv.RedisServer
			_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
				s.Rules.Root = root
				if store == "redis" {
					redis = testenv.Redis(t)
					s.Redis.Main.URL = redis.Addr
				}
			}))
			has := func(path string, wants ...string) {
				t.Helper()
				page := ""
				testenv.Eventually(t, func() error {
					page = pageOf(t, debugAddr, path)
					for _, want := range wants {
						if !strings.Contains(page, want) {
							return fmt.Errorf("%s lacks %q:\n%s", path, want, page)
						}
					}
					return nil
				}, "the page")
			}
			for range 4 {
				postJSON(t, httpAddr, `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"quizzebra"}]}]}`)
			}
			has("/", `<span class="good">ready</span>`, "At most 2 requests per hour for each tenant", "50 % denied",
				"4 requests in the last hour, at most 4 in a minute; 2 denied")
			has("/", "<p>tenant, few</p>", `<div class="number bad">over</div>`, "2 of 2", "2 denials since", "they are hashed")
			if page := pageOf(t, debugAddr, "/"); strings.Contains(page, "each idle") || !strings.Contains(page, "All 2 rules") {
				t.Errorf("the overview has a rule without requests:\n%s", page)
			}
			has("/rules", "2 of 2 rules, page 1 of 1", "for each idle", "50 % denied")
			has("/rules?filter=DLE&page=x", "1 of 2 rules", `value="DLE"`, "for each idle")
			if store == "memory" {
				has("/", "<strong>memory</strong>", "Replaced buckets")
			} else {
				has("/", redis.Addr, "answers", "Last known buckets", "Leased units")
			}

			_, before := get(t, "http://"+debugAddr+"/metrics")
			ask := func(query string, wants ...string) { t.Helper(); has("/ask?"+query, wants...) }
			shop := func(descriptor string) string { return "domain=shop&descriptor=" + url.QueryEscape(descriptor) }
			ask("", `<form action="/ask">`)
			ask(shop("tenant=wildebeest"), "few: 0 of 2 used", "=&gt; allowed (nothing was charged)", "overallCode")
			ask(shop("tenant=wildebeest\r\n"), "few: 0 of 2 used")
			ask(shop("tenant=quizzebra"), "few: 2 of 2 used", "=&gt; refused, over_limit")
			ask(shop("tenat=wildebeest"), "did you mean `tenant`?")
			ask(shop("tenant"), "Each line of the descriptor must be KEY=VALUE.")
			ask(shop("tenant=a\xff"), "The request cannot be sent")
			ask("check=1&domain=shop", "=&gt; refused, no_policy, status 403")
			_, after := get(t, "http://"+debugAddr+"/metrics")
			if decided(before) != decided(after) {
				t.Errorf("the form has changed the metrics of decisions:\n%s\nbefore:\n%s", decided(after), decided(before))
			}
			for _, path := range []string{"/", "/rules", "/ask?" + shop("tenant=a")} {
				res, err := http.Post("http://"+debugAddr+path, "text/plain", nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				if res.StatusCode != http.StatusMethodNotAllowed {
					t.Errorf("POST %s: %d, want 405", path, res.StatusCode)
				}
			}
			if code, index := get(t, "http://"+debugAddr+"/"); code != http.StatusOK || strings.Contains(index, "<") ||
				!strings.Contains(index, "/rlconfig") {
				t.Errorf("/ for a client that wants no HTML: %d %s", code, index)
			}

			write := func(content string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			write(rules + "  - {kye: <b>}\n")
			has("/", "Newer rules are refused", "rules.yaml:5:6", "kye", "for each tenant")
			write(strings.Replace(rules, "key: idle", "key: busy", 1))
			has("/", "Added by the last reload</dt><dd><strong>shop.busy</strong>", "Removed</dt><dd><strong>shop.idle</strong>",
				"Changed</dt><dd><strong>none</strong>", "50 % denied")
			if page := pageOf(t, debugAddr, "/"); strings.Contains(page, "Newer rules are refused") {
				t.Errorf("the refused rules are still there:\n%s", page)
			}
			if redis != nil {
				redis.Kill()
				postJSON(t, httpAddr, `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"wildebeest"}]}]}`)
				has("/", "does not answer: on_store_error decides", "Admitted without Redis")
			}
			for _, value := range []string{"quizzebra", "wildebeest"} {
				if strings.Contains(out.String(), value) {
					t.Errorf("the log has what was asked:\n%s", out)
				}
				for _, path := range []string{"/", "/rules", "/ask"} {
					if page := pageOf(t, debugAddr, path); strings.Contains(page, value) {
						t.Errorf("%s has a value of a client:\n%s", path, page)
					}
				}
			}
		})
	}
}
