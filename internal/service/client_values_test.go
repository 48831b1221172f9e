package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

// chosen is a value that a client chooses wherever it can.
const chosen = "quizzebra"

// policyOfAll accepts every kind of credential, and makes descriptors from values of the client.
const policyOfAll = `
domain: shop
descriptors:
  - {key: owner, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: from_client, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: in_shadow, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
authz:
  credentials:
    - api_key: {header: x-api-key}
    - mtls: {principals: ["spiffe://example.org/*"]}
  limits:
    - actions: [{credential: {field: owner}}]
    - actions: [{request_headers: {header: "x-any", key: path}}]
    - actions: [{request_headers: {header: "x-any", key: in_shadow}}]
`

// TestClientValuesAreNotLogged sends a value in every place that a client can choose, to every service. At DEBUG the
// log has it only with LOG_CLIENT_VALUES=true, and then without what could be a credential.
func TestClientValuesAreNotLogged(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"false", "true"} {
		t.Run("LOG_CLIENT_VALUES="+values, func(t *testing.T) {
			root := testenv.RulesRootWith(t, policyOfAll)
			for _, store := range []string{"memory", "redis"} {
				env := configured(func(s *settings.Settings) {
					s.Rules.Root = root
					s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
					s.Keys.Secret = "a-server-secret-of-a-test"
					s.Keys.File = filepath.Join(root, "keys.jsonl")
					s.Telemetry.LogClientValues = values == "true"
					s.Authorization.SourceHeader = "x-source"
					s.Authorization.PrincipalHeader = "x-principal"
				})
				var server *testenv.RedisServer
				if store == "redis" {
					server = testenv.Redis(t)
					env.Redis.Main.URL = server.Addr
				}
				key := keys(t, env, "create", "--file", env.Keys.File, "--owner", "own-"+chosen, "--plan", "plan-"+chosen)
				grpcAddr, httpAddr, debugAddr, out := start(t, env)
				for range 2 { // the second is over the limit
					sendChosen(t, grpcAddr, httpAddr, key)
				}
				checkPages(t, debugAddr, key, values == "true")
				if server != nil {
					server.Kill()
					sendChosen(t, grpcAddr, httpAddr, key)
				}
				for _, path := range []string{"/", "/rules", "/ask"} {
					page := strings.ToLower(pageOf(t, debugAddr, path))
					if got := strings.Contains(page, chosen); got != (values == "true" && path == "/") {
						t.Errorf("that %s has a client's value is %t:\n%s", path, got, page)
					}
				}
				always := []string{"domain=shop", "reason=invalid", "reason=over_limit", "rule=owner", "status=429", "key_id=",
					"took=", "keys=[from_client]", "did you mean `from_client`?", "did you mean `shop`?"}
				said := logged(t, out, always...)
				if n := strings.Count(said, "msg=decided"); n < 10 {
					t.Fatalf("%d decisions are in the log:\n%s", n, said)
				}
				for _, secret := range []string{key, "cookie-" + chosen, "query-" + chosen, "header-" + chosen, "body-" + chosen} {
					if strings.Contains(said, secret) {
						t.Errorf("the log has %s", secret)
					}
				}
				for _, value := range []string{"http_method=METHOD-", "host=host-", "path=/path-", "source=", "request_id=id-",
					"owner=own-", "plan=plan-", "owner=spiffe://example.org/", "values=[descriptor-"} {
					if got := strings.Contains(said, value); got != (values == "true") {
						t.Errorf("that the log has %s is %t:\n%s", value, got, said)
					}
				}
				if got := strings.Contains(strings.ToLower(said), chosen); got != (values == "true") {
					t.Errorf("that the log has a client's value is %t:\n%s", got, said)
				}
			}
		})
	}
}

// checkPages reads the pages of the debug port. Those of hot keys have values of clients if that is allowed, the others
// never.
func checkPages(t *testing.T, debugAddr, key string, allowed bool) {
	t.Helper()
	for _, page := range []string{"/top", "/shadow", "/", "/rlconfig", "/metrics"} {
		_, body := get(t, "http://"+debugAddr+page)
		hot := page == "/top" || page == "/shadow"
		if got := strings.Contains(strings.ToLower(body), chosen); got != (hot && allowed) {
			t.Errorf("that %s has a client's value is %t:\n%s", page, got, body)
		}
		if strings.Contains(body, key) || hot && (!strings.Contains(body, `"state": "over"`) ||
			!strings.Contains(body, `"denied_since": "20`)) {
			t.Errorf("%s has the key, or no key over its limit:\n%s", page, body)
		}
	}
}

// sendChosen sends requests with chosen values: with each credential, without one, and with one that is not valid.
func sendChosen(t *testing.T, grpcAddr, httpAddr, key string) {
	t.Helper()
	conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, credential := range []string{"", key, "invalid-" + chosen, "\xff" + chosen} {
		for _, principal := range []string{"", "spiffe://example.org/" + chosen} {
			headers := map[string]string{
				"x-request-id": "id-" + chosen, "cookie": "a=cookie-" + chosen, "x-any": "header-" + chosen,
				"authorization": "Bearer header-" + chosen,
				chosen:          "header-" + chosen, "user-agent": "header-" + chosen,
			}
			if credential != "" {
				headers["x-api-key"] = credential
			}
			raw := &core.HeaderMap{}
			for name, value := range headers {
				raw.Headers = append(raw.Headers, &core.HeaderValue{Key: name, RawValue: []byte(value)})
			}
			peer := &auth.AttributeContext_Peer{Principal: principal,
				Address: &core.Address{Address: &core.Address_SocketAddress{
					SocketAddress: &core.SocketAddress{Address: "fd00::abcd"},
				}}}
			res, err := auth.NewAuthorizationClient(conn).Check(ctx, &auth.CheckRequest{Attributes: &auth.AttributeContext{
				Source: peer, ContextExtensions: map[string]string{"domain": "shop"},
				Request: &auth.AttributeContext_Request{Http: &auth.AttributeContext_HttpRequest{
					Method: "METHOD-" + chosen, Host: "host-" + chosen + ".example", Path: "/path-" + chosen + "?q=query-" + chosen,
					HeaderMap: raw, Body: "body-" + chosen,
				}},
			}})
			if err != nil {
				t.Fatal(err)
			}
			for name, value := range res.GetDynamicMetadata().GetFields() {
				if name != "owner" && name != "plan" && strings.Contains(value.GetStringValue(), chosen) {
					t.Errorf("%s in the metadata has a client's value: %s", name, value)
				}
			}
			req, err := http.NewRequestWithContext(ctx, "METHOD-"+chosen,
				"http://"+httpAddr+"/check/path-"+chosen+"?q=query-"+chosen, strings.NewReader("body-"+chosen))
			if err != nil {
				t.Fatal(err)
			}
			req.Host = "host-" + chosen + ".example"
			for name, value := range headers {
				if name != "x-api-key" || value == key || strings.HasPrefix(value, "invalid") {
					req.Header.Set(name, value)
				}
			}
			req.Header.Set("x-principal", principal)
			req.Header.Set("x-source", "source-"+chosen)
			answer(t, req)
		}
	}
	_, err = rls.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "shop",
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "from_client", Value: "descriptor-" + chosen}}},
			{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "from_clint", Value: "descriptor-" + chosen}}},
		}})
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range []string{
		`{"domain":"shop","descriptors":[{"entries":[{"key":"from_client","value":"descriptor-%[1]s"}]}]}`,
		`{"domain":"shpo","descriptors":[{"entries":[{"key":"from_client","value":"descriptor-%[1]s"}]}]}`, `{"%[1]s":1}`,
		`%[1]s`,
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+httpAddr+"/json",
			strings.NewReader(fmt.Sprintf(body, chosen)))
		if err != nil {
			t.Fatal(err)
		}
		answer(t, req)
	}
}

func answer(t *testing.T, req *http.Request) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}

// TestPanicsShowNoValues checks that only values of the runtime's own panics are shown. Others may be data of the
// client.
func TestPanicsShowNoValues(t *testing.T) {
	t.Parallel()
	for _, value := range []any{chosen, errors.New(chosen), fmt.Errorf("%s", chosen), []byte(chosen)} {
		if got := panicText(value); strings.Contains(got, chosen) || got == "" {
			t.Errorf("panicText(%T) = %q", value, got)
		}
	}
	func() {
		defer func() {
			if got := panicText(recover()); !strings.Contains(got, "index out of range [1]") {
				t.Errorf("an error of the runtime is %q", got)
			}
		}()
		_ = []int{0}[len(os.Args[:1])]
	}()
}
