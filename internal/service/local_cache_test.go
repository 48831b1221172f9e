package service

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestLocalCache sends requests over a limit in strict mode with LOCAL_CACHE_SIZE_IN_BYTES. Redis is asked once for
// the denied client. After Redis has ended, the client is still denied, and requests of other clients fail, but count
// as hits.
func TestLocalCache(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	_, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, "domain: shop\n"+
			"descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 2}}]\n")
		s.Limits.Compatibility, s.Limits.DefaultAlgorithm = "strict", bucket.FixedWindow
		s.Limits.LocalCache = 1
		s.Redis.Main.URL = server.Addr
		s.Redis.Main.Timeout = 10 * time.Second
	}))
	ask := func(user string, want int) {
		t.Helper()
		body := `{"domain":"shop","descriptors":[{"entries":[{"key":"user","value":"` + user + `"}]}]}`
		if got := postJSON(t, httpAddr, body); got != want {
			t.Errorf("user %s: status %d, want %d", user, got, want)
		}
	}
	const denied = http.StatusTooManyRequests
	for _, want := range []int{http.StatusOK, http.StatusOK, denied} {
		ask("a", want)
	}
	before, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	ask("a", denied)
	after, err := admin.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	if calls(before) == "" || calls(before) != calls(after) {
		t.Errorf("the cached denial has asked Redis: %q, then %q", calls(before), calls(after))
	}
	server.Kill()
	ask("a", denied)
	ask("b", http.StatusServiceUnavailable)
	_, metrics := get(t, "http://"+debugAddr+"/metrics")
	for _, want := range []string{`total_hits{domain="shop",key1="user"} 6`, `within_limit{domain="shop",key1="user"} 2`,
		`over_limit{domain="shop",key1="user"} 3`, `over_limit_with_local_cache{domain="shop",key1="user"} 2`,
	} {
		if !strings.Contains(metrics, "ratelimit_service_rate_limit_"+want+"\n") {
			t.Errorf("no %s in\n%s", want, samplesOf(metrics, "ratelimit_service_rate_limit_"))
		}
	}
}

// calls returns the line of `INFO commandstats` that counts calls of the script.
func calls(info string) string {
	for line := range strings.Lines(info) {
		if strings.HasPrefix(line, "cmdstat_evalsha:") || strings.HasPrefix(line, "cmdstat_fcall:") {
			count, _, _ := strings.Cut(line, ",")
			return count
		}
	}
	return ""
}
