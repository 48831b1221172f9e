package service

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// keepingRules have whatever could keep a text of a request: counters by value, buckets with short and long keys, and
// metadata.
const keepingRules = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 3, algorithm: fixed_window}}
  - {key: token, rate_limit: {unit: year, requests_per_unit: 100, algorithm: token_bucket, lease: 5}}
  - {key: long, rate_limit: {unit: year, requests_per_unit: 100, algorithm: sliding_window_log, hash_tag: long}}
  - {key: debt, rate_limit: {unit: year, requests_per_unit: 9}, metadata: {a: b}}
`

// TestTextsOfRequestsAreNotKept sends requests of many tenants at once over the native transport, where the texts of a
// request are in memory that later requests overwrite. With the race detector, they are overwritten at once. Nothing of
// one request may show in the buckets, metrics, logs or answers of another one.
func TestTextsOfRequestsAreNotKept(t *testing.T) {
	t.Parallel()
	const tenants = 40
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			redis := testenv.Redis(t)
			root := testenv.RulesRootWith(t, keepingRules)
			grpcAddr, _, debugAddr, out := start(t, configured(func(s *settings.Settings) {
				s.Rules.Root = root
				s.Listeners.Transport = "native"
				s.Limits.Backend = store
				s.Redis.Main.URL = redis.Addr
				s.Redis.Main.Timeout = 10 * time.Second
				s.Answers.DynamicMetadata = true
				s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
				s.Telemetry.LogClientValues = true
			}))
			conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := rlsv3.NewRateLimitServiceClient(conn)
			ofAll := func(ask func(tenant string)) {
				var all sync.WaitGroup
				for i := range tenants {
					all.Go(func() { ask(tenantNamed(i)) })
				}
				all.Wait()
			}
			ofAll(func(tenant string) { askAsTenant(t, client, tenant) })
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			for i := range tenants {
				name := tenantNamed(i)
				checkAllowed(t, metrics, name)
				testenv.Eventually(t, func() error {
					if got := strings.Count(out.String(), "values=["+name+"]"); got < 4 {
						return fmt.Errorf("%d lines", got)
					}
					return nil
				}, "four lines of the tenant "+name)
			}
			if store == "redis" { // units that are admitted without Redis are charged later, under the right keys
				once := func(tenant string) {
					request := requestOf(tenant)
					request.Descriptors = request.GetDescriptors()[1:] // the first one is over its limit
					_, _ = client.ShouldRateLimit(t.Context(), request)
				}
				redis.Kill()
				ofAll(once)
				redis.Restart()
				testenv.Eventually(t, func() error { return checkKeys(redis, 4*tenants) }, "the buckets in Redis")
				ofAll(once)
				if err := checkKeys(redis, 4*tenants); err != nil {
					t.Error(err)
				}
			}
			checkNotOverwritten(t, metrics, out.String())
		})
	}
}

// tenantNamed returns a name whose length differs from that of its neighbours.
func tenantNamed(i int) string { return fmt.Sprintf("tenant-%d-%s", i, strings.Repeat("x", i%13)) }

// checkAllowed checks that three requests of a tenant are counted as allowed, under its name.
func checkAllowed(t *testing.T, metrics, tenant string) {
	t.Helper()
	sample := fmt.Sprintf("extauthz_ratelimit_decisions_total{decision=%q,domain=%q,limit=%q,rule=%q} 3\n",
		"allowed", "shop", "tenant", "tenant_"+tenant)
	if !strings.Contains(metrics, sample) {
		t.Errorf("no sample %s", sample)
	}
}

// checkNotOverwritten checks that metrics and logs have no text of a request whose memory was used again.
func checkNotOverwritten(t *testing.T, outputs ...string) {
	t.Helper()
	for _, text := range outputs {
		if strings.Contains(text, "\xff") || strings.Contains(text, "\uFFFD") || strings.Contains(text, `\xff`) {
			t.Errorf("text that was overwritten:\n%.5000s", text)
		}
	}
}

func requestOf(tenant string) *rlsv3.RateLimitRequest {
	request := &rlsv3.RateLimitRequest{Domain: "shop"}
	for _, e := range []*corev3.RateLimitDescriptor_Entry{
		{Key: "tenant", Value: tenant}, {Key: "token", Value: tenant}, {Key: "debt", Value: tenant},
		{Key: "long", Value: strings.Repeat(tenant, 10)}, {Key: "override", Value: tenant},
	} {
		d := &corev3.RateLimitDescriptor{Entries: []*corev3.RateLimitDescriptor_Entry{e}}
		if e.GetKey() == "override" {
			d.Limit = &corev3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 50, Unit: typev3.RateLimitUnit_YEAR}
		}
		request.Descriptors = append(request.Descriptors, d)
	}
	return request
}

// askAsTenant sends four requests. The last one is over the limit of the tenant, and all answers name its values.
func askAsTenant(t *testing.T, client rlsv3.RateLimitServiceClient, tenant string) {
	for n := range 4 {
		res, err := client.ShouldRateLimit(t.Context(), requestOf(tenant))
		if err != nil {
			t.Error(err)
			return
		}
		want := rlsv3.RateLimitResponse_OK
		if n == 3 {
			want = rlsv3.RateLimitResponse_OVER_LIMIT
		}
		if res.GetOverallCode() != want {
			t.Errorf("request %d of %s: %v, want %v", n, tenant, res, want)
		}
		for i, limit := range []uint32{0: 3, 2: 9, 3: 100, 4: 50} { // what is left of a lease differs
			left := res.GetStatuses()[i].GetLimitRemaining()
			if limit > 0 && left != limit-min(3, uint32(n)+1) {
				t.Errorf("request %d of %s leaves %d of limit %d", n, tenant, left, limit)
			}
		}
		if metadata := res.GetDynamicMetadata().String(); strings.Count(metadata, tenant) < 4 {
			t.Errorf("the metadata of %s: %s", tenant, metadata)
		}
	}
}

// bucketKeys are the keys of buckets, of the notes beside them, and of the set of replicas. Only the buckets of the log
// have a hash tag.
var bucketKeys = regexp.MustCompile(
	`^rl:(o?4:shop\S*;\S*(\d+:tenant-\d+-x*|#[0-9a-f]{32})|\{\S*\}4:shop\S*;#[0-9a-f]{32}|r\{\S*|replicas)$`)

// checkKeys checks that Redis has at least so many buckets, and that each is that of a tenant.
func checkKeys(redis *testenv.RedisServer, least int) error {
	reply, err := redis.Do("KEYS", "*")
	if err != nil {
		return err
	}
	keys := strings.Fields(reply)
	for _, key := range keys {
		if !bucketKeys.MatchString(key) {
			return fmt.Errorf("a bucket %q", key)
		}
	}
	if len(keys) < least {
		return fmt.Errorf("%d buckets, want %d: %q", len(keys), least, keys)
	}
	return nil
}
