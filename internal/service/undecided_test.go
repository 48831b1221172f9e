package service

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestUndecidedIsSaid uses a Redis whose memory is full. The log has one line with the reason and without the client's
// key, and each request is counted.
func TestUndecidedIsSaid(t *testing.T) {
	t.Parallel()
	server := testenv.Redis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	_, httpAddr, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Redis.Main.URL = server.Addr
		s.Redis.Main.Timeout = 10 * time.Second
	}))
	if err := admin.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		res, err := http.Post("http://"+httpAddr+"/json", "application/json",
			strings.NewReader(strings.Replace(rls.Example, "demo", "hush", 1)))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("status %d, want 200: memory decides", res.StatusCode)
		}
	}
	if n := strings.Count(logged(t, out, "reason=OOM"), `msg="Redis did not decide`); n != 1 {
		t.Errorf("said %d times, want once with reason=OOM, in\n%s", n, out)
	}
	const counted = `extauthz_store_undecided_total{reason="OOM"} 2`
	if _, metrics := get(t, "http://"+debugAddr+"/metrics"); !strings.Contains(metrics, counted) {
		t.Errorf("no %s in\n%s", counted, metrics)
	}
	if strings.Contains(out.String(), "hush") {
		t.Errorf("a client's key in\n%s", out)
	}
}
