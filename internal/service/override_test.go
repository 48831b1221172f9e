package service

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/extauthz/extauthz/internal/inspect"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const overrideRules = `domain: shop
descriptors:
  - key: owner
    rate_limit: {name: per-owner, unit: minute, requests_per_unit: 60, algorithm: token_bucket, override: {max: 100}}
  - key: tenant
    rate_limit: {name: per-tenant, unit: hour, requests_per_unit: 6, override: {max: 100, name: own}}
authz:
  credentials: [{api_key: {header: x-api-key}}]
  limits:
    - actions: [{credential: {field: owner}}]
    - actions: [{credential: {field: owner, key: tenant}}]
`

// withOverrides returns settings with the rules of this file and an own Redis, or without one.
func withOverrides(t *testing.T, redis bool) *settings.Settings {
	t.Helper()
	return configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRootWith(t, overrideRules)
		s.Keys.Secret, s.Keys.File = "a-server-secret-of-a-test", filepath.Join(t.TempDir(), "keys.jsonl")
		if redis {
			s.Redis.Main.URL, s.Redis.Main.Timeout = testenv.Redis(t).Addr, 10*time.Second
		}
	})
}

// TestOverrideMax sends 120 requests whose descriptor brings a limit above the max of the rule's override, in units
// that differ. The metrics have the name of the rule.
func TestOverrideMax(t *testing.T) {
	t.Parallel()
	for _, redis := range []bool{false, true} {
		t.Run(fmt.Sprint("redis ", redis), func(t *testing.T) {
			t.Parallel()
			env := withOverrides(t, redis)
			keys(t, env, "create", "--owner", "eve")
			_, addr, debug, _ := start(t, env)
			for _, limit := range []string{
				`{"requestsPerUnit":120,"unit":"HOUR"}`, `{"requestsPerUnit":1,"unit":"SECOND"}`,
				`{"requestsPerUnit":2401,"unit":"DAY"}`,
			} {
				passed := 0
				for range 120 {
					if postJSON(t, addr, fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":"tenant","value":%q}],`+
						`"limit":%s,"hitsAddend":"1"}]}`, limit, limit)) == http.StatusOK {
						passed++
					}
				}
				if passed != 100 {
					t.Errorf("%s: %d of 120 passed, want 100", limit, passed)
				}
			}
			_, body := get(t, "http://"+debug+"/metrics")
			for _, want := range []string{
				`extauthz_ratelimit_decisions_total{decision="denied",domain="shop",limit="own",rule="tenant"} 60`,
				`extauthz_ratelimit_override_decisions_total{decision="denied"} 0`,
			} {
				if !strings.Contains(body, want) {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// TestActiveLimit uses 2 of the limit of a key. Then /json, a peek over gRPC and `extauthz buckets` show that limit
// and not the one that it replaces, of which nothing is used.
func TestActiveLimit(t *testing.T) {
	t.Parallel()
	for _, redis := range []bool{false, true} {
		t.Run(fmt.Sprint("redis ", redis), func(t *testing.T) {
			t.Parallel()
			env := withOverrides(t, redis)
			dan := keys(t, env, "create", "--owner", "dan", "--limit", "5/day")
			keys(t, env, "create", "--owner", "eve")
			grpcAddr, addr, _, _ := start(t, env)
			for range 2 {
				if code := checkAs(t, addr, dan); code != http.StatusOK {
					t.Fatalf("the key: %d", code)
				}
			}
			conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for _, c := range []struct{ key, owner, name, want string }{
				{"owner", "dan", "per-owner", "3 of 5"}, {"tenant", "dan", "own", "3 of 5"},
				{"owner", "eve", "per-owner", "60 of 60"}, {"tenant", "eve", "per-tenant", "6 of 6"},
			} {
				ask := fmt.Sprintf(`{"domain":"shop","descriptors":[{"entries":[{"key":%q,"value":%q}],"hitsAddend":"0"}]}`,
					c.key, c.owner)
				req, overJSON := new(rlsv3.RateLimitRequest), new(rlsv3.RateLimitResponse)
				if err := protojson.Unmarshal([]byte(ask), req); err != nil {
					t.Fatal(err)
				}
				overGRPC, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), req)
				if err != nil {
					t.Fatal(err)
				}
				if err := protojson.Unmarshal(answerOf(t, addr, ask), overJSON); err != nil {
					t.Fatal(err)
				}
				for way, res := range map[string]*rlsv3.RateLimitResponse{"gRPC": overGRPC, "/json": overJSON} {
					s := res.GetStatuses()[0]
					got := fmt.Sprintf("%d of %d", s.GetLimitRemaining(), s.GetCurrentLimit().GetRequestsPerUnit())
					if got != c.want || s.GetCurrentLimit().GetName() != c.name {
						t.Errorf("%s=%s over %s: %s of %s, want %s of %s", c.key, c.owner, way, got,
							s.GetCurrentLimit().GetName(), c.want, c.name)
					}
				}
			}
			if redis {
				activeBuckets(t, env)
			}
		})
	}
}

// activeBuckets resets the bucket of the active limit.
func activeBuckets(t *testing.T, env *settings.Settings) {
	t.Helper()
	for _, c := range []struct{ args, want string }{
		{"--dry-run", "per-owner 2 of 5"}, {"-o json", "per-owner 2 of 5"}, {"--dry-run", "per-owner 0 of 5"},
	} {
		args := append([]string{"buckets", "reset", "--domain", "shop", "--descriptor", "owner=dan", "-o", "json"},
			strings.Fields(c.args)...)
		code, stdout, stderr := runProgram(t, env, "", args...)
		var list []inspect.Bucket
		if err := json.Unmarshal([]byte(stdout), &list); err != nil || code != exitOK || len(list) != 1 {
			t.Fatalf("exit code %d, %v\n%s%s", code, err, stdout, stderr)
		}
		if got := fmt.Sprintf("%s %d of %d", list[0].Limit, list[0].Used, list[0].Capacity); got != c.want {
			t.Errorf("buckets reset %s: %s, want %s", c.args, got, c.want)
		}
	}
}

// answerOf returns the answer of /json.
func answerOf(t *testing.T, addr, body string) []byte {
	t.Helper()
	res, err := http.Post("http://"+addr+"/json", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
