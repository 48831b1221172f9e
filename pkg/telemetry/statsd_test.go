package telemetry

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestStatsdOfManyRules sends more statistics at once than a datagram holds, and a gauge.
func TestStatsdOfManyRules(t *testing.T) {
	t.Parallel()
	const many = 20_000
	var text strings.Builder
	text.WriteString("domain: shop\ndescriptors:\n")
	for i := range many {
		fmt.Fprintf(&text, "- {key: user, value: u%d, rate_limit: {unit: hour, requests_per_unit: 1}}\n", i)
	}
	set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(text.String())}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
	rules.EachCounters(func(_ ratelimit.Series, c *ratelimit.Counters) { c.Allowed.Add(1); c.Denied.Add(1) })

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	var received, gauges atomic.Int64
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			if strings.HasSuffix(lines.Text(), "total_hits:2|c") {
				received.Add(1)
			}
			if lines.Text() == "ratelimit.redis_pool.cx_active:2|g" {
				gauges.Add(1)
			}
		}
	}()
	s := NewStatsd(StatsdConfig{
		Network: "tcp", Address: listener.Addr().String(), Interval: 10 * time.Millisecond, Log: slog.Default(),
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Run(ctx, &Stats{
			Rules: func() *ratelimit.Rules { return rules }, Totals: new(ratelimit.Totals),
			Loads: func() (succeeded, failed uint64) { return 1, 0 }, Calls: NewCalls(prometheus.NewRegistry()),
			Pools: map[string]func() (opened, closed uint64){
				"redis_pool": func() (opened, closed uint64) { return 5, 3 },
			},
		})
	}()
	testenv.Eventually(t, func() error {
		if gauges.Load() == 0 {
			return errors.New("no gauge")
		}
		if n := received.Load(); n != many {
			return fmt.Errorf("%d of %d statistics", n, many)
		}
		return nil
	}, "the statistics of all rules")
	cancel()
	<-ended
}

// TestShadowBesideStatistics checks that a limit in shadow beside others adds no hits to the statistics of its rule.
func TestShadowBesideStatistics(t *testing.T) {
	t.Parallel()
	set, problems := file.Parse([]file.File{{Name: "shop.yaml", Content: []byte(`
domain: shop
descriptors:
  - key: user
    limits:
      - {unit: hour, requests_per_unit: 9}
      - {unit: hour, requests_per_unit: 5, shadow_mode: true}
`)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	rules := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{})
	rules.EachCounters(func(s ratelimit.Series, c *ratelimit.Counters) {
		if s.Beside {
			c.ShadowDenied.Add(2)
		} else {
			c.Allowed.Add(7)
		}
	})
	all := (&Stats{
		Rules: func() *ratelimit.Rules { return rules }, Totals: new(ratelimit.Totals),
		Loads: func() (succeeded, failed uint64) { return 1, 0 }, Calls: NewCalls(prometheus.NewRegistry()),
	}).Counters()
	for name, want := range map[string]uint64{"total_hits": 7, "within_limit": 7, "over_limit": 0, "shadow_mode": 2} {
		if got := all["ratelimit.service.rate_limit.shop.user."+name]; got != want {
			t.Errorf("%s: got %d, want %d", name, got, want)
		}
	}
}

// TestMogrifiedTag has a client's value that would be a second tag.
func TestMogrifiedTag(t *testing.T) {
	t.Parallel()
	m := Mogrifier{Pattern: regexp.MustCompile(`^hits\.(.*)$`), Name: "hits", Tags: []Tag{{"user", "$1"}}}
	name, tags, ok := m.mogrify("hits.ann,forged")
	if want := []string{"user:ann_forged"}; !ok || name != "hits" || !slices.Equal(tags, want) {
		t.Errorf("%q with %q, want hits with %q", name, tags, want)
	}
}
