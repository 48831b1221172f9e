package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const showRules = `domain: shop
descriptors:
  - key: owner
    rate_limit: {name: per-owner, unit: hour, requests_per_unit: 100, override: {max: 1000}}
    descriptors: [{key: method, rate_limit: {name: per-method, unit: hour, requests_per_unit: 7}}]
  - {key: plan, value: gold, descriptors: [{key: key_id, rate_limit: {name: gold, unit: hour, requests_per_unit: 9}}]}
  - {key: "a*[b]?", rate_limit: {name: odd, unit: hour, requests_per_unit: 5}}
  - {key: address, rate_limit: {name: refusals, unit: hour, requests_per_unit: 15}}
authz:
  credentials: [{api_key: {header: x-api-key}}]
  limits:
    - actions: [{credential: {field: owner}}]
    - actions: [{credential: {field: plan}}, {credential: {field: key_id}}]
    - actions: [{credential: {field: owner}}, {method: {}}]
  refused: [{actions: [{remote_address: {key: address}}]}]
`

// TestBucketsShow shows the buckets of a descriptor, of an API key and of a rule, by the settings of the service and by
// its debug listener. Nothing is charged by that.
func TestBucketsShow(t *testing.T) {
	t.Parallel()
	for _, store := range []string{"memory", "redis", "cluster"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, showRules)
				s.Keys.File, s.Keys.Secret = filepath.Join(t.TempDir(), "keys.jsonl"), "a-server-secret-of-a-test"
				s.Redis.Main.Timeout = 10 * time.Second // a busy machine is not a fault
			})
			key := keys(t, env, "create", "--file", env.Keys.File, "--owner", "ann", "--plan", "gold", "--limit", "20/hour")
			switch store {
			case "redis":
				env.Redis.Main.URL = testenv.Redis(t).Addr
			case "cluster":
				env.Redis.Main.Type, env.Redis.Main.URL = "CLUSTER", testenv.Cluster(t).Addrs()
			}
			_, httpAddr, debugAddr, _ := start(t, env)
			ask := func(key string) int {
				r, err := http.NewRequest(http.MethodGet, "http://"+httpAddr+"/check/a", nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("x-api-key", key)
				res, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = res.Body.Close()
				return res.StatusCode
			}
			for range 3 {
				testenv.Eventually(t, func() error {
					if code := ask(key); code != http.StatusOK {
						return fmt.Errorf("status %d", code)
					}
					return nil
				}, "allowed")
			}
			if code := ask("wrong"); code != http.StatusForbidden {
				t.Fatalf("a wrong key: %d", code)
			}
			postJSON(t, httpAddr, `{"domain":"shop","descriptors":[{"entries":[{"key":"a*[b]?","value":"x"}]}]}`)
			for _, c := range []struct {
				args, want string
				code       int
			}{
				{"--descriptor owner=ann", "per-owner 3 of 20 3600 false", exitOK},
				{"--descriptor owner=bob", "per-owner 0 of 100 0 false", exitOK},
				{"--descriptor owner=ann,method=GET", "per-method 3 of 7 3600 false", exitOK},
				{"--key-id " + strings.Split(key, "_")[1], "per-owner 3 of 20 3600 false, gold 3 of 9 3600 false; " +
					"1 limit of the policy also depends on the request: use --descriptor", exitOK},
				{"--key-id none", "no API key `none` is valid now", exitFailed},
				{"--descriptor onwer=ann", "did you mean `owner`?", exitFailed},
				{"--rule a*[b]?", "odd 1 of 5 3600 false", exitOK},
				{"--rule address", "refusals 1 of 15 3600 true", exitOK},
				{"--rule ownr", "no limited rule `ownr` in the domain `shop` (did you mean owner?)", exitFailed},
				{"--rule owner --key-id a", "want one of", exitUsage},
				{"", "want one of", exitUsage},
			} {
				places := []string{"--debug " + debugAddr, ""}
				if store == "memory" {
					places = places[:1]
				}
				for _, place := range places {
					args := strings.Fields("buckets show --domain shop -o json " + c.args + " " + place)
					code, stdout, stderr := runProgram(t, env, "", args...)
					if store == "memory" && strings.HasPrefix(c.args, "--rule") && c.code != exitUsage {
						c.want, c.code = "extauthz buckets top", exitFailed
					}
					if got := shownBuckets(t, stdout) + stderr; code != c.code || !strings.Contains(got, c.want) ||
						code == exitOK && got != c.want {
						t.Errorf("%v: exit code %d, want %d, %q; got %q", args, code, c.code, c.want, got)
					}
				}
			}
			if store != "redis" {
				return
			}
			client := redis.NewClient(&redis.Options{Addr: env.Redis.Main.URL})
			t.Cleanup(func() { _ = client.Close() })
			name := client.Keys(t.Context(), "*owner*3:ann").Val()[0]
			if err := errors.Join(client.Del(t.Context(), name).Err(), client.RPush(t.Context(), name, "x").Err()); err != nil {
				t.Fatal(err)
			}
			_, stdout, _ := runProgram(t, env, "", "buckets", "show", "--domain", "shop", "-o", "json",
				"--descriptor", "owner=ann", "--debug", debugAddr)
			const want = "per-owner 3 of 20 3600 false; Redis did not decide (WRONGTYPE): this is the last known state"
			if got := shownBuckets(t, stdout); got != want {
				t.Errorf("of a key with another type, got %q, want %q", got, want)
			}
		})
	}
}

// shownBuckets returns buckets in short: limit, usage, reset in seconds, and whether it counts refused requests. Resets
// near an hour are 3600.
func shownBuckets(t *testing.T, stdout string) string {
	t.Helper()
	if stdout == "" {
		return ""
	}
	var shown Buckets
	if err := json.Unmarshal([]byte(stdout), &shown); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	var list []string
	for _, b := range shown.Buckets {
		reset := b.Reset
		if reset > 3500 && reset <= 3600 {
			reset = 3600
		}
		list = append(list, fmt.Sprintf("%s %d of %d %g %t", b.Limit, b.Used, b.Capacity, reset, b.Refused))
	}
	slices.Sort(list[min(1, len(list)):])
	text := strings.Join(list, ", ")
	if shown.Note != "" {
		text += "; " + shown.Note
	}
	return text
}
