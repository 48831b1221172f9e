package service

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestServeExplain explains a request ten times in services of all stores. It uses up no limit, and no metric and no
// line of the log shows it.
func TestServeExplain(t *testing.T) {
	t.Parallel()
	const rules = "domain: shop\ndescriptors: [{key: tenant, rate_limit: {name: few, unit: hour, requests_per_unit: 2}}]\n"
	redis := testenv.Redis(t)
	for store, url := range map[string]string{"memory": "", "redis": redis.Addr} {
		t.Run(store, func(t *testing.T) {
			_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
				s.Rules.Root, s.Redis.Main.URL = testenv.RulesRootWith(t, rules), url
			}))
			ask := func(address, body string) (int, string) {
				res, err := http.Post("http://"+address, "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = res.Body.Close() }()
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				return res.StatusCode, string(text)
			}
			const request = `{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":"quizzebra"}]}]}`
			if code, text := ask(httpAddr+"/json", request); code != http.StatusOK {
				t.Fatalf("/json: %d %s", code, text)
			}
			_, before := get(t, "http://"+debugAddr+"/metrics")
			for range 10 {
				code, text := ask(debugAddr+"/explain", request)
				var e inspect.Explanation
				if err := json.Unmarshal([]byte(text), &e); err != nil || code != http.StatusOK {
					t.Fatalf("/explain: %d, %v: %s", code, err, text)
				}
				if len(e.Descriptors) != 1 || len(e.Descriptors[0].Buckets) != 1 || e.Verdict != "allowed" {
					t.Fatalf("/explain: want one allowed bucket: %s", text)
				}
				if b := e.Descriptors[0].Buckets[0]; b.Used != 1 || b.Remaining != 0 || !b.Fits || b.Charge != 1 {
					t.Fatalf("/explain after one request: %+v, want 1 of 2 used", b)
				}
			}
			_, after := get(t, "http://"+debugAddr+"/metrics")
			if decided(before) != decided(after) || decided(after) == "" {
				t.Errorf("/explain has changed the metrics of decisions:\n%s\nbefore:\n%s", decided(after), decided(before))
			}
			if code, _ := ask(debugAddr+"/explain", strings.Repeat(" ", 2<<20)); code != http.StatusBadRequest {
				t.Errorf("/explain of 2 MiB: %d, want 400", code)
			}
			if code, text := ask(debugAddr+"/explain", `{"domain": 1}`); code != http.StatusBadRequest ||
				!strings.Contains(text, "RateLimitRequest") {
				t.Errorf("/explain of a wrong request: %d %s, want 400", code, text)
			}
			if code, _ := get(t, "http://"+debugAddr+"/explain"); code != http.StatusMethodNotAllowed {
				t.Errorf("GET /explain: %d, want 405", code)
			}
			if strings.Contains(out.String(), "quizzebra") {
				t.Errorf("the log has a value of the client:\n%s", out)
			}
		})
	}
}

// decided returns the metrics of decisions.
func decided(metrics string) string {
	var lines []string
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "extauthz_ratelimit_") || strings.HasPrefix(line, "extauthz_authz_") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}
