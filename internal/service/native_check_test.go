package service

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestNativeChecks: the Checks of one read are decided with one call of the store. One that needs the keys of an issuer
// is answered when it has them, and no other waits for it.
func TestNativeChecks(t *testing.T) {
	t.Parallel()
	parsed, problems := file.Parse([]file.File{{Name: "a.yaml", Content: []byte(
		"domain: good\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 9}}]\n")}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	memory, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = memory.Close() })
	store := &counted{Store: memory}
	rules := ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return rules }, Store: store})
	keys := make(chan struct{})
	address := serveNative(t, newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()),
		flow.Config{Limiter: limiter, Authorizer: &byHost{keys: keys}})
	framer := sendTogether(t, address, auth.Method,
		checkRequest("slow"), checkRequest("a"), checkRequest("b"), checkRequest("slow"), checkRequest("a"))
	want := map[uint32]string{3: "0", 5: "0", 9: "0"}
	if got := readStatuses(t, framer, len(want)); !maps.Equal(got, want) {
		t.Errorf("while two wait for keys, got %v, want %v", got, want)
	}
	if n := store.calls.Load(); n != 1 {
		t.Errorf("%d calls of the store, want 1", n)
	}
	close(keys)
	want = map[uint32]string{1: "0", 7: "0"}
	if got := readStatuses(t, framer, len(want)); !maps.Equal(got, want) {
		t.Errorf("afterwards, got %v, want %v", got, want)
	}
}

// byHost is an authorizer that allows all requests within the limit of their host. The host slow waits for keys.
type byHost struct{ keys chan struct{} }

func (a *byHost) Begin(_ context.Context, r *authz.Request, p *authz.Pending) {
	if r.Host == "slow" {
		<-a.keys
	}
	p.Decision.Verdict, p.Decision.Identity.Owner = authz.Allowed, r.Host
	entries := []descriptors.Entry{{Key: "user", Value: r.Host}}
	p.Query = ratelimit.Query{Domain: "good", Descriptors: []descriptors.Descriptor{{Entries: entries}}}
}

func (a *byHost) BeginNow(r *authz.Request, p *authz.Pending) bool {
	if r.Host == "slow" {
		return false
	}
	a.Begin(context.Background(), r, p)
	return true
}

func (*byHost) Finish(*authz.Pending, *ratelimit.Result) {}

// counted counts the calls of a store.
type counted struct {
	ratelimit.Store
	calls atomic.Int64
}

func (c *counted) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	c.calls.Add(1)
	c.Store.Start(ctx, requests, outcomes, done)
}

// checkRequest is a CheckRequest for a host.
func checkRequest(host string) []byte {
	const attributes, request, http, hostField = 1<<3 | wire.Bytes, 4<<3 | wire.Bytes, 2<<3 | wire.Bytes, 5<<3 | wire.Bytes
	in := func(tag uint64, message []byte) []byte { return wire.AppendText(nil, tag, string(message)) }
	return in(attributes, in(request, in(http, in(hostField, []byte(host)))))
}

// keepingPolicy has whatever could keep a text of a Check: an identity that comes from the request, and a counter and a
// bucket by the value of a header.
const keepingPolicy = `
domain: shop
descriptors:
  - {key: tenant, detailed_metric: true, rate_limit: {unit: year, requests_per_unit: 3, algorithm: fixed_window}}
authz:
  credentials: [{mtls: {principals: ["tenant-*"]}}]
  limits: [{actions: [{request_headers: {header: x-tenant, key: tenant}}]}]
`

// TestTextsOfChecksAreNotKept does for Checks what TestTextsOfRequestsAreNotKept does for requests for limits.
func TestTextsOfChecksAreNotKept(t *testing.T) {
	t.Parallel()
	const tenants = 40
	for _, store := range []string{"memory", "redis"} {
		t.Run(store, func(t *testing.T) {
			t.Parallel()
			grpcAddr, _, debugAddr, out := start(t, configured(func(s *settings.Settings) {
				s.Rules.Root = testenv.RulesRootWith(t, keepingPolicy)
				s.Listeners.Transport = "native"
				s.Limits.Backend = store
				s.Redis.Main.URL = testenv.Redis(t).Addr
				s.Redis.Main.Timeout = 10 * time.Second
				s.Telemetry.LogLevel = settings.LogLevel(slog.LevelDebug)
				s.Telemetry.LogClientValues = true
			}))
			conn, err := grpc.NewClient(grpcAddr, grpc.WithTransportCredentials(insecure.NewCredentials()))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			client := authv3.NewAuthorizationClient(conn)
			var all sync.WaitGroup
			for i := range tenants {
				all.Go(func() { checkAsTenant(t, client, tenantNamed(i)) })
			}
			all.Wait()
			_, metrics := get(t, "http://"+debugAddr+"/metrics")
			for i := range tenants {
				name := tenantNamed(i)
				checkAllowed(t, metrics, name)
				testenv.Eventually(t, func() error {
					if got := strings.Count(out.String(), " owner="+name+" "); got != 4 {
						return fmt.Errorf("%d lines", got)
					}
					return nil
				}, "four lines of the owner "+name)
			}
			checkNotOverwritten(t, metrics, out.String())
		})
	}
}

// checkAsTenant sends four Checks. The last one is over the limit of the tenant, and all answers name it.
func checkAsTenant(t *testing.T, client authv3.AuthorizationClient, tenant string) {
	for n := range 4 {
		res, err := client.Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Source: &authv3.AttributeContext_Peer{Principal: tenant},
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
				Method: "GET", Host: "shop.example", Path: "/",
				Headers: map[string]string{"x-tenant": tenant, "x_auth_owner": tenant},
			}},
		}})
		if err != nil {
			t.Error(err)
			return
		}
		want := codes.OK
		if n == 3 {
			want = codes.PermissionDenied
		}
		if got := codes.Code(res.GetStatus().GetCode()); got != want {
			t.Errorf("request %d of %s: %v, want %v: %v", n, tenant, got, want, res)
		}
		if owner := res.GetDynamicMetadata().GetFields()["owner"].GetStringValue(); owner != tenant {
			t.Errorf("request %d of %s: the owner in metadata is %q", n, tenant, owner)
		}
		ok := res.GetOkResponse()
		if want == codes.OK && (ok.GetHeaders()[0].GetHeader().GetValue() != tenant ||
			!slices.Contains(ok.GetHeadersToRemove(), "x_auth_owner")) {
			t.Errorf("request %d of %s: %v", n, tenant, ok)
		}
	}
}
