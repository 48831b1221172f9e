package service

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const heldRules = `domain: shop
descriptors:
  - key: team
    rate_limit:
      {name: tokens, unit: year, requests_per_unit: 1000, algorithm: fixed_window, hold: {ttl: 168h, most: 25}}
  - key: user
    rate_limit: {name: slots, algorithm: concurrency, requests_per_unit: 2, hold: {ttl: 168h}}
  - key: tenant
    rate_limit: {name: plain, unit: year, requests_per_unit: 5, algorithm: fixed_window}
`

// TestHoldsAreSeen reserves and settles, and compares what an operator sees of it with a golden file: the buckets,
// explanations, the page, the metrics and the log. It is the same for each store.
func TestHoldsAreSeen(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			var redis *testenv.RedisServer
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, heldRules)
				s.Telemetry.LogLevel = settings.LogLevel(-4) // DEBUG
				if store == "redis" {
					redis = testenv.Redis(t)
					s.Redis.Main.URL, s.Redis.Main.Timeout = redis.Addr, 5*time.Second
				}
			})
			_, httpAddr, debugAddr, out := start(t, env)
			body := func(key, value, action, id string, hits int) string {
				return fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":%q,"value":%q},{"key":%q,"value":%q}],`+
					`"hitsAddend":%d}]}`, key, value, action, id, hits)
			}
			ask := func(want int, body string) {
				t.Helper()
				if code := postJSON(t, httpAddr, body); code != want {
					t.Fatalf("%s: status %d, want %d", body, code, want)
				}
			}
			ask(http.StatusOK, body("team", "a", "hold.reserve", "call-0", 40))
			ask(http.StatusOK, body("team", "a", "hold.settle", "call-0", 120))
			ask(http.StatusOK, body("team", "a", "hold.settle", "call-0", 5))
			for i := range 25 {
				ask(http.StatusOK, body("team", "a", "hold.reserve", fmt.Sprint("call-", i), 10))
			}
			ask(http.StatusTooManyRequests, body("team", "a", "hold.reserve", "call-25", 10))
			ask(http.StatusOK, body("user", "ann", "hold.reserve", "call-1", 1))
			ask(http.StatusOK, body("user", "ann", "hold.reserve", "call-2", 1))

			var golden strings.Builder
			show := func(args ...string) {
				t.Helper()
				places := []string{debugAddr}
				if store == "redis" {
					places = append(places, "")
				}
				var first string
				for i, place := range places {
					with := args
					if place != "" {
						with = append(args, "--debug", place)
					}
					_, stdout, stderr := runProgram(t, env, "", with...)
					stdout += stderr
					if i == 0 {
						first = stdout
						fmt.Fprintf(&golden, "$ extauthz %s\n%s\n", strings.Join(args, " "), stdout)
					} else if diff := cmp.Diff(settled(first), settled(stdout)); diff != "" {
						t.Errorf("%v: without --debug (+) other than with it (-):\n%s", args, diff)
					}
				}
			}
			explain := func(body string) {
				path := filepath.Join(t.TempDir(), "request.json")
				if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
					t.Fatal(err)
				}
				_, stdout, stderr := runProgram(t, env, "", "explain", "--debug", debugAddr, "--request", path)
				stdout, _, _ = strings.Cut(stdout, "{")
				fmt.Fprintf(&golden, "$ extauthz explain %s\n%s%s\n", body, stdout, stderr)
			}
			show("buckets", "show", "--domain", "shop", "--descriptor", "team=a")
			show("buckets", "show", "--domain", "shop", "--descriptor", "user=ann,hold.reserve=call-1", "-o", "json")
			show("buckets", "show", "--domain", "shop", "--descriptor", "user=bob")
			explain(body("team", "a", "hold.reserve", "call-30", 5))
			explain(body("team", "b", "hold.reserve", "call-30", 1001))
			explain(body("team", "b", "hold.reserve", "call-30", 1000))
			explain(body("team", "a", "hold.settle", "call-3", 70))
			explain(body("team", "a", "hold.settle", "call-99", 70))
			explain(body("user", "ann", "hold.reserve", "call-3", 1))
			explain(body("user", "ann", "hold.settle", "call-2", 0))
			explain(`{"domain":"shop","descriptors":[{"entries":[{"key":"team","value":"a"}],"hitsAddend":700}]}`)
			explain(body("tenant", "a", "hold.reserve", "call-1", 1))
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			for line := range strings.Lines(metrics) {
				if strings.HasPrefix(line, "extauthz_ratelimit_h") {
					golden.WriteString(line)
				}
			}
			_, page := getHTML(t, "http://"+debugAddr+"/rules")
			for line := range strings.Lines(page) {
				if strings.Contains(line, "hold") {
					golden.WriteString(line)
				}
			}
			for line := range strings.Lines(out.String()) {
				if _, line, ok := strings.Cut(line, "msg=decided "); ok && !strings.Contains(line, "cost=10 remaining=8") {
					golden.WriteString(line)
				}
			}
			got := settled(golden.String())
			file := filepath.Join("testdata", "holds_seen.txt")
			if *update && store == "memory" {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if redis == nil {
				return
			}
			if code, _, stderr := runProgram(t, env, "", "buckets", "reset", "--domain", "shop",
				"--descriptor", "team=a"); code != 0 {
				t.Fatalf("buckets reset: %s", stderr)
			}
			_, stdout, _ := runProgram(t, env, "", "buckets", "show", "--domain", "shop", "--descriptor", "team=a")
			if !strings.Contains(stdout, "0 of 1000 used  ") || strings.Contains(stdout, "held") {
				t.Errorf("after a reset: %s", stdout)
			}
			redis.Kill()
			_, stdout, _ = runProgram(t, env, "", "buckets", "show", "--domain", "shop", "--descriptor", "user=ann",
				"--debug", debugAddr)
			const outage = `slots  0 of 2 used, 2 held in 2 holds  nothing used  "rl:4:shop4:user*/c0;3:ann"
  hold 5d7963c4f471e142  1 held  expires in N s
  hold 3ba8dced2e729b16  1 held  expires in N s
note: Redis did not decide`
			if got := settled(stdout); !strings.HasPrefix(got, outage) {
				t.Errorf("without Redis:\n%s\nwant:\n%s", got, outage)
			}
		})
	}
}

// settled replaces what differs between runs.
func settled(text string) string {
	for _, r := range [][2]string{
		{`in \d+ s`, `in N s`}, {`("(?:until|expires|reset)":) [0-9.]+`, `$1 N`}, {`at=\S+:(\d+)`, "at=:$1"},
		{`\(/\S+:(\d+)\)`, "(:$1)"}, {`, denied since \S+ \(\d+\)`, ""}, {`decided_by=\S+ `, ""}, {`;t=\d{3,}`, ";t=N"},
		{`(after:?) \d{3,}`, "$1 N"},
		{`retry_after=\d{3,}`, "retry_after=N"}, {` {2,}`, "  "},
	} {
		text = regexp.MustCompile(r[0]).ReplaceAllString(text, r[1])
	}
	return text
}

// getHTML returns a page as a browser gets it.
func getHTML(t *testing.T, url string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("accept", "text/html")
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}
