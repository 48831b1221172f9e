package service

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// statisticsRules are rules whose statistics have names of all kinds.
const statisticsRules = `
domain: shop
descriptors:
  - {key: database, value: users, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: database, rate_limit: {unit: year, requests_per_unit: 1}, shadow_mode: true}
  - {key: remote_address, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 5}}
  - key: path
    value: /v1/*
    descriptors:
      - key: method
        descriptors: [{key: user, value_to_metric: true, rate_limit: {unit: year, requests_per_unit: 10}}]
`

// statisticsRequests are requests for statisticsRules: domain, hits and entries.
var statisticsRequests = []string{
	"shop 1 database=users", "shop 2 database=users", "shop 1 database=users", // 1 of 2; 1 over and 1 that fits; 2 of 2
	"shop 1 database=orders", "shop 3 database=orders",
	"shop 1 remote_address=192.0.2.1", "shop 1 remote_address=192.0.2.2",
	"shop 9 path=/v1/orders method=GET user=alice", "shop 1 path=/v1/carts method=GET user=alice",
	"other 1 database=users", "shop 1",
}

// send sends requests to the rate limit service. Errors are not reported, because some requests cause one.
func send(t *testing.T, address string, requests []string) {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := rlsv3.NewRateLimitServiceClient(conn)
	for _, request := range requests {
		words := strings.Fields(request)
		r := &rlsv3.RateLimitRequest{Domain: words[0]}
		if _, err := fmt.Sscan(words[1], &r.HitsAddend); err != nil {
			t.Fatal(err)
		}
		d := new(corev3.RateLimitDescriptor)
		for _, entry := range words[2:] {
			key, value, _ := strings.Cut(entry, "=")
			d.Entries = append(d.Entries, &corev3.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		if d.Entries != nil {
			r.Descriptors = append(r.Descriptors, d)
		}
		_, _ = client.ShouldRateLimit(t.Context(), r)
	}
}

// TestMetricsOfRatelimit checks the metrics of envoyproxy/ratelimit on the listener of their own, and on the debug
// port.
func TestMetricsOfRatelimit(t *testing.T) {
	t.Parallel()
	port := testenv.FreePort(t)
	grpcAddr, _, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, statisticsRules)
		s.Telemetry.UsePrometheus = true
		s.Telemetry.PrometheusAddr = settings.HostPort{Host: "127.0.0.1", Port: uint16(port)}
		s.Telemetry.PrometheusPath = "/stats/prometheus"
		s.Telemetry.NearLimitRatio = 0.5
	}))
	send(t, grpcAddr, statisticsRequests)
	const want = `
ratelimit_service_config_load_error 0
ratelimit_service_config_load_success 1
ratelimit_service_global_shadow_mode 0
ratelimit_service_rate_limit_near_limit{domain="shop",key1="database"} 1
ratelimit_service_rate_limit_near_limit{domain="shop",key1="database_users"} 2
ratelimit_service_rate_limit_near_limit{domain="shop",key1="path_/v1/*",key2="method"} 4
ratelimit_service_rate_limit_near_limit{domain="shop",key1="remote_address"} 0
ratelimit_service_rate_limit_near_limit{domain="shop",key1="remote_address_192_0_2_1"} 0
ratelimit_service_rate_limit_near_limit{domain="shop",key1="remote_address_192_0_2_2"} 0
ratelimit_service_rate_limit_over_limit{domain="shop",key1="database"} 3
ratelimit_service_rate_limit_over_limit{domain="shop",key1="database_users"} 1
ratelimit_service_rate_limit_over_limit{domain="shop",key1="path_/v1/*",key2="method"} 0
ratelimit_service_rate_limit_over_limit{domain="shop",key1="remote_address"} 0
ratelimit_service_rate_limit_over_limit{domain="shop",key1="remote_address_192_0_2_1"} 0
ratelimit_service_rate_limit_over_limit{domain="shop",key1="remote_address_192_0_2_2"} 0
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="database"} 3
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="database_users"} 0
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="path_/v1/*",key2="method"} 0
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="remote_address"} 0
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="remote_address_192_0_2_1"} 0
ratelimit_service_rate_limit_shadow_mode{domain="shop",key1="remote_address_192_0_2_2"} 0
ratelimit_service_rate_limit_total_hits{domain="shop",key1="database"} 4
ratelimit_service_rate_limit_total_hits{domain="shop",key1="database_users"} 4
ratelimit_service_rate_limit_total_hits{domain="shop",key1="path_/v1/*",key2="method"} 10
ratelimit_service_rate_limit_total_hits{domain="shop",key1="remote_address"} 0
ratelimit_service_rate_limit_total_hits{domain="shop",key1="remote_address_192_0_2_1"} 1
ratelimit_service_rate_limit_total_hits{domain="shop",key1="remote_address_192_0_2_2"} 1
ratelimit_service_rate_limit_within_limit{domain="shop",key1="database"} 1
ratelimit_service_rate_limit_within_limit{domain="shop",key1="database_users"} 2
ratelimit_service_rate_limit_within_limit{domain="shop",key1="path_/v1/*",key2="method"} 10
ratelimit_service_rate_limit_within_limit{domain="shop",key1="remote_address"} 0
ratelimit_service_rate_limit_within_limit{domain="shop",key1="remote_address_192_0_2_1"} 1
ratelimit_service_rate_limit_within_limit{domain="shop",key1="remote_address_192_0_2_2"} 1
ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"} 11
ratelimit_service_should_rate_limit_error{err_type="redis_error"} 0
ratelimit_service_should_rate_limit_error{err_type="service_error"} 1
ratelimit_service_total_requests{grpc_method="ShouldRateLimit"} 11
`
	noise := regexp.MustCompile(`(?m)^.*(_bucket|_sum|_local_cache)\{.*\n`)
	for _, url := range []string{
		"http://" + testenv.Loopback(port) + "/stats/prometheus", "http://" + debugAddr + "/metrics",
	} {
		status, body := get(t, url)
		got := "\n" + sorted(noise.ReplaceAllString(samplesOf(body, "ratelimit_service_"), ""))
		if diff := cmp.Diff(want, got); diff != "" || status != http.StatusOK {
			t.Errorf("%s: %d (-want +got)\n%s", url, status, diff)
		}
		for _, le := range []string{"0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "+Inf"} {
			sample := fmt.Sprintf(`ratelimit_service_response_time_seconds_bucket{grpc_method="ShouldRateLimit",le=%q} `, le)
			if !strings.Contains(body, sample) {
				t.Errorf("%s has no bucket up to %s s", url, le)
			}
		}
	}
	if status, _ := get(t, "http://"+testenv.Loopback(port)+"/metrics"); status != http.StatusNotFound {
		t.Errorf("another path of PROMETHEUS_ADDR: %d", status)
	}
}

func sorted(lines string) string {
	return strings.Join(slices.Sorted(strings.Lines(lines)), "")
}

// TestMappingFiles has files of PROMETHEUS_MAPPER_YAML: one that names the metrics, one that is missing, and one with
// mistakes.
func TestMappingFiles(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "mapper.yaml")
	mapping := `
mappings:
  - {match: "ratelimit.service.rate_limit.*.*.total_hits", name: hits, timer_type: histogram, labels: {rule: $2}}
  - {match: "ratelimit_server.*.response_time", name: answer_milliseconds, timer_type: histogram}
`
	if err := os.WriteFile(file, []byte(mapping), 0o600); err != nil {
		t.Fatal(err)
	}
	root := testenv.RulesRootWith(t, statisticsRules)
	grpcAddr, _, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Telemetry.MetricMapping = file
	}))
	send(t, grpcAddr, statisticsRequests)
	_, body := get(t, "http://"+debugAddr+"/metrics")
	want := `
hits{rule="database"} 4
hits{rule="database_users"} 4
hits{rule="remote_address"} 0
hits{rule="remote_address_192_0_2_1"} 1
hits{rule="remote_address_192_0_2_2"} 1
answer_milliseconds_bucket{le="2500"} 11
`
	got := "\n" + samplesOf(body, "hits{") + samplesOf(body, `answer_milliseconds_bucket{le="2500"}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if !strings.Contains(body, "\nratelimit_service_rate_limit_shop_database_users_over_limit 1\n") {
		t.Errorf("a statistic without a mapping has another name:\n%s", body)
	}

	_, _, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Telemetry.MetricMapping = file + ".missing"
	}))
	_, body = get(t, "http://"+debugAddr+"/metrics")
	if samplesOf(body, "ratelimit_service_rate_limit_total_hits{") == "" {
		t.Errorf("no default names:\n%s", body)
	}
	if n := strings.Count(out.String(), "PROMETHEUS_MAPPER_YAML does not exist"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, out)
	}

	if err := os.WriteFile(file, []byte("mappings: [{match: a b, name: x}, {match: a, name: '-'}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Telemetry.MetricMapping = file
	})
	err := Run(t.Context(), Config{Settings: s, Stderr: out})
	for _, want := range []string{"PROMETHEUS_MAPPER_YAML: the file has mistakes", `1 (match "a b")`, "mapping 2"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
