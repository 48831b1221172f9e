package service

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const resetRules = `domain: shop
descriptors:
  - key: user
    limits:
      - {name: day, unit: day, requests_per_unit: 3}
      - {name: second, unit: second, requests_per_unit: 100}
  - key: database
    rate_limit: {unlimited: true}
`

// TestBucketsReset uses up a limit in Redis and resets it, while two replicas remember the bucket. It also leaves a
// note, so that no replica restores the bucket after a loss of state.
func TestBucketsReset(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"single", "cluster", "per second"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, resetRules)
				s.Limits.KeyPrefix = "shop:"
				s.Redis.Main.Timeout = 10 * time.Second
			})
			var server *testenv.RedisServer
			switch kind {
			case "cluster":
				cluster := testenv.Cluster(t)
				env.Redis.Main.Type, env.Redis.Main.URL = "CLUSTER", cluster.Addrs()
			case "per second":
				env.Redis.UsePerSecond, env.Redis.PerSecond.URL = true, testenv.Redis(t).Addr
				fallthrough
			default:
				server = testenv.Redis(t)
				env.Redis.Main.URL = server.Addr
			}
			_, first, _, _ := start(t, env)
			_, second, _, _ := start(t, env)
			asks := func(addr string) int {
				return postJSON(t, addr, `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`)
			}
			eventually := func(addr string, want int) {
				t.Helper()
				testenv.Eventually(t, func() error {
					if got := asks(addr); got != want {
						return errors.New(http.StatusText(got))
					}
					return nil
				}, http.StatusText(want))
			}
			reset := func(args ...string) []inspect.Bucket {
				t.Helper()
				args = append([]string{"buckets", "reset", "--domain", "shop", "--descriptor", "user=ann", "-o", "json"}, args...)
				code, stdout, stderr := runProgram(t, env, "", args...)
				var list []inspect.Bucket
				if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != exitOK || len(list) != 2 {
					t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
				}
				return list
			}
			for _, addr := range []string{first, second} {
				eventually(addr, http.StatusTooManyRequests)
			}
			for _, args := range [][]string{{"--dry-run"}, {"--dry-run"}, nil} {
				if got := reset(args...)[0]; got.Limit != "day" || got.Used != 3 || got.Capacity != 3 {
					t.Errorf("reset %v: %+v", args, got)
				}
			}
			if got := reset("--dry-run"); got[0].Used != 0 || got[1].Used != 0 {
				t.Errorf("after the reset: %+v", got)
			}
			if kind == "single" {
				if notes, err := server.Do("KEYS", "shop:rl:r{*"); err != nil || notes == "" {
					t.Errorf("no note: %q, %v", notes, err)
				}
			}
			eventually(second, http.StatusOK)
			eventually(first, http.StatusOK)
		})
	}
}

// TestBucketsResetStays resets a used-up bucket that two replicas remember. Redis then loses it. What was used since
// the reset comes back, and nothing from before it. A replica that has not asked since needs the note for that.
func TestBucketsResetStays(t *testing.T) {
	t.Parallel()
	const limit = 6
	rules := strings.Replace(resetRules, "requests_per_unit: 3", fmt.Sprint("requests_per_unit: ", limit), 1)
	for name, c := range map[string]struct {
		lose func(bucket string) []string
		// asks are the replicas that are asked between the reset and the loss: twice each, because the first answer after a
		// reset looks like a loss of state.
		asks []int
	}{
		"all data is lost":                   {func(string) []string { return []string{"FLUSHALL"} }, []int{0, 1}},
		"the bucket is lost, its note stays": {func(bucket string) []string { return []string{"DEL", bucket} }, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := testenv.Redis(t)
			env := configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, rules)
				s.Redis.Main.URL = server.Addr
				s.Redis.Main.Timeout = 10 * time.Second
				s.Redis.DenialCache = false
			})
			var replicas [2]string
			for i := range replicas {
				_, replicas[i], _, _ = start(t, env)
			}
			passes := func(replica int) bool {
				body := `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"ann"}]}]}`
				return postJSON(t, replicas[replica], body) == http.StatusOK
			}
			for range limit {
				for i := range replicas {
					passes(i)
				}
			}
			code, stdout, stderr := runProgram(t, env, "", "buckets", "reset", "--domain", "shop", "--descriptor", "user=ann",
				"-o", "json")
			var list []inspect.Bucket
			if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != exitOK {
				t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
			}
			left := limit
			for range 2 {
				for _, i := range c.asks {
					if left--; !passes(i) {
						t.Errorf("replica %d denies after the reset", i)
					}
				}
			}
			if _, err := server.Do(c.lose(list[0].Key)...); err != nil {
				t.Fatal(err)
			}
			passed := 0
			for n := range 2 * limit {
				if passes(1 - n%2) {
					passed++
				}
			}
			if passed < left || passed > left+len(replicas) { // each replica learns of the loss by one request
				t.Errorf("%d requests passed after the loss, want %d and at most one more for each replica", passed, left)
			}
		})
	}
}

// TestBucketsResetRefuses checks the errors of descriptors without buckets.
func TestBucketsResetRefuses(t *testing.T) {
	t.Parallel()
	root := testenv.RulesRootWith(t, resetRules)
	inRedis := configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Redis.Main.URL = testenv.Redis(t).Addr
	})
	for _, c := range []struct {
		env  *settings.Settings
		args []string
		code int
		want string
	}{
		{inRedis, []string{"--domain", "shop", "--descriptor", "usr=ann"}, exitFailed, "did you mean `user`?"},
		{inRedis, []string{"--domain", "shp", "--descriptor", "user=ann"}, exitFailed, "did you mean `shop`?"},
		{inRedis, []string{"--domain", "shop", "--descriptor", "database=x"}, exitFailed, "unlimited"},
		{inRedis, []string{"--domain", "shop", "--descriptor", "user"}, exitUsage, "want KEY=VALUE"},
		{inRedis, []string{"--domain", "shop"}, exitUsage, "missing --descriptor"},
		{inRedis, []string{"--descriptor", "user=ann"}, exitUsage, "missing --domain"},
		{configured(func(s *settings.Settings) { s.Rules.Root = root }),
			[]string{"--domain", "shop", "--descriptor", "user=ann"}, exitFailed, "set REDIS_URL"},
		{configured(func(s *settings.Settings) {
			s.Rules.Root = root
			s.Redis.Main.URL = "127.0.0.1:1"
		}),
			[]string{"--domain", "shop", "--descriptor", "user=ann"}, exitFailed, "127.0.0.1:1"},
	} {
		code, stdout, stderr := runProgram(t, c.env, "", append([]string{"buckets", "reset"}, c.args...)...)
		if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit code %d, want %d, %q in\n%s%s", c.args, code, c.code, c.want, stdout, stderr)
		}
	}
}
