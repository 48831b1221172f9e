package service

import (
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestPools compares the statistics of connections with what two servers of Redis show, and closes the connections.
func TestPools(t *testing.T) {
	t.Parallel()
	main, second := testenv.Redis(t), testenv.Redis(t)
	_, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, "domain: shop\ndescriptors:\n"+
			"  - {key: user, rate_limit: {unit: hour, requests_per_unit: 100000}}\n"+
			"  - {key: ip, rate_limit: {unit: second, requests_per_unit: 100000}}\n")
		s.Redis.Main.URL, s.Redis.PerSecond.URL, s.Redis.UsePerSecond = main.Addr, second.Addr, true
	}))
	ask := func(key string) {
		body := `{"domain":"shop","descriptors":[{"entries":[{"key":"` + key + `","value":"a"}]}]}`
		if status := postJSON(t, httpAddr, body); status != http.StatusOK {
			t.Errorf("%s: status %d", key, status)
		}
	}
	for pool, server := range map[string]*testenv.RedisServer{"redis_pool": main, "redis_per_second_pool": second} {
		key := map[bool]string{true: "user", false: "ip"}[server == main]
		admin := redis.NewClient(&redis.Options{Addr: server.Addr})
		defer admin.Close()
		for _, kill := range []bool{false, true} {
			if kill { // all but that of admin
				if err := admin.ClientKillByFilter(t.Context(), "TYPE", "normal").Err(); err != nil {
					t.Fatal(err)
				}
			}
			ask(key)
			testenv.Eventually(t, func() error {
				ask(key)
				list, err := admin.ClientList(t.Context()).Result()
				if err != nil {
					return err
				}
				_, metrics := get(t, "http://"+debugAddr+"/metrics")
				open, shown := strings.Count(list, "\n")-1, figure(metrics, "ratelimit_"+pool+"_cx_active")
				total := figure(metrics, "ratelimit_"+pool+"_cx_total")
				closed := figure(metrics, "ratelimit_"+pool+"_cx_local_close")
				// A connection that is idle ends later.
				if open < 1 || total != shown+closed || !kill && shown != open || kill && closed == 0 {
					return fmt.Errorf("%s: %d connections; statistics: %d of %d are open, %d closed", pool, open, shown, total, closed)
				}
				return nil
			}, "the statistics of "+pool)
		}
	}
}

// figure returns the value of a metric without labels, −1 if there is none.
func figure(metrics, name string) int {
	match := regexp.MustCompile(`(?m)^` + name + ` (\d+)$`).FindStringSubmatch(metrics)
	if match == nil {
		return -1
	}
	n, _ := strconv.Atoi(match[1])
	return n
}
