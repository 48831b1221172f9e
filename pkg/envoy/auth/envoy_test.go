package auth_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/test/testenv"
)

// services are the listeners of testdata/envoy.yaml: each asks in another way.
var services = []string{"grpc", "raw", "http"}

func TestEnvoy(t *testing.T) {
	g := startGateway(t)
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			t.Run("the request to the upstream", func(t *testing.T) { testUpstream(t, g, service) })
			t.Run("the response to an HTTP client", func(t *testing.T) { testHTTPClient(t, g, service) })
			t.Run("the response to a gRPC client", func(t *testing.T) { testGRPCClient(t, g, service) })
			t.Run("dynamic metadata", func(t *testing.T) { testMetadata(t, g, service) })
		})
	}
	t.Run("the request to the authorizer", func(t *testing.T) { testRead(t, g) })
	t.Run("held answers", func(t *testing.T) { testHeld(t, g) })
	t.Run("a client that gives up", func(t *testing.T) { testGivesUp(t, g) })
	t.Run("TCP", func(t *testing.T) { testTCP(t, g) })
}

// spoofed are headers that clients must not be able to set.
var spoofed = []string{
	"x-owner", "evil", "x-owner", "evil2", "X-Plan", "evil", "x-key-id", "evil", "x-api-key", "s3cret",
	"x_owner", "evil", "x-key_id", "evil", "x.owner", "evil", "x-key.id", "evil", "x~plan", "evil",
	"Connection", "x-owner",
}

func testUpstream(t *testing.T, g *gateway, service string) {
	for _, c := range []struct {
		path, uri   string
		owner, plan []string
	}{
		{"/allowed?%61pi_key=s3cret&x=1&api_key=s3cret&y=a%26b&api_key=", "/allowed?x=1&y=a%26b",
			[]string{"ann"}, []string{"gold"}},
		{"/anonymous", "/anonymous", nil, nil},
	} {
		resp, body := g.get(t, service, c.path, spoofed...)
		if resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %s", c.path, resp.Status)
		}
		var got seen
		if err := json.Unmarshal([]byte(body), &got); err != nil {
			t.Fatal(err)
		}
		if service != "http" && got.URI != c.uri { // an HTTP service cannot remove query parameters
			t.Errorf("%s: got %s, want %s", c.path, got.URI, c.uri)
		}
		for name, want := range map[string][]string{
			"X-Owner": c.owner, "X-Plan": c.plan, "X-Key-Id": nil, "X_owner": nil, "X-Key_id": nil, "X.owner": nil,
			"X-Key.id": nil, "X~plan": nil,
			"X-Ext-Authz-Owner": nil, "Ratelimit": nil, "X-Envoy-Auth-Headers-To-Remove": nil,
		} {
			if service == "http" && strings.ContainsAny(name, "_.~") {
				continue // an HTTP service does not receive these headers
			}
			if diff := cmp.Diff(want, got.Header[name]); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", c.path, name, diff)
			}
		}
		if c.owner != nil && got.Header.Get("X-Api-Key") != "" {
			t.Errorf("%s: the upstream sees the key: %v", c.path, got.Header)
		}
	}
}

func testHTTPClient(t *testing.T, g *gateway, service string) {
	for _, c := range []struct {
		path   string
		status int
		header map[string][]string
		body   string
	}{
		{"/allowed", 200, map[string][]string{"Ratelimit": {`"upstream";r=1`, `"per-plan";r=4;t=12`}, "X-Owner": nil}, ""},
		{"/absent", 401, map[string][]string{
			"Www-Authenticate": {`ApiKey realm="shop"`}, "Content-Type": {reply.ProblemType},
		}, `{"title":"Unauthorized","status":401}`},
		{"/invalid", 403, map[string][]string{"Content-Type": {reply.ProblemType}}, `{"status":403}`},
		{"/too_large", 431, map[string][]string{"Content-Type": {reply.ProblemType}}, `{"status":431}`},
		{"/over_limit", 429, map[string][]string{
			"Retry-After": {"7"}, "Content-Type": {reply.ProblemType}, "Grpc-Status": nil,
		}, `{"title":"Too Many Requests","status":429}`},
		{"/undecided", 503, map[string][]string{"Retry-After": {"1"}, "Content-Type": {reply.ProblemType}}, `{"status":503}`},
		{"/zero", 403, nil, ""},
		{"/status_of_a_success", 403, nil, ""},
		{"/unknown_verdict", 403, nil, ""},
		{"/unsendable_headers", 200, map[string][]string{"X-Ok": {"1, 2"}, "X-Nul": nil}, ""},
	} {
		resp, body := g.get(t, service, c.path)
		if service == "http" && c.path == "/undecided" {
			c.header, c.body = nil, "" // Envoy does not pass them on
		}
		if service == "http" && c.path == "/unsendable_headers" {
			c.header["X-Ok"] = nil // not in allowed_client_headers_on_success
		}
		if resp.StatusCode != c.status || resp.StatusCode != http.StatusOK && body != c.body {
			t.Errorf("%s: got %s %s, want %d %s", c.path, resp.Status, body, c.status, c.body)
		}
		for name, want := range c.header {
			if diff := cmp.Diff(want, resp.Header[name]); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s", c.path, name, diff)
			}
		}
	}
}

func testGRPCClient(t *testing.T, g *gateway, service string) {
	if err := g.call(t, service, "/allowed/Say"); err != nil {
		t.Errorf("allowed: %v", err)
	}
	for _, c := range []struct {
		method  string
		code    codes.Code
		message string
	}{
		{"/absent/Say", codes.Unauthenticated, "A credential is needed."},
		{"/invalid/Say", codes.PermissionDenied, "The credential is not valid."},
		{"/too_large/Say", codes.Unknown, "The request has too many headers, or too much other data for a decision."},
		{"/over_limit/Say", codes.ResourceExhausted, "The rate limit is exceeded. Try again in 7 s."},
		{"/never_within_the_limit/Say", codes.ResourceExhausted, "This request costs more than its limit can ever allow."},
		{"/undecided/Say", codes.Unavailable, "This cannot be decided at the moment."},
	} {
		got := status.Convert(g.call(t, service, c.method))
		message := got.Message()
		if service == "http" && c.code == codes.Unavailable {
			message = c.message // Envoy does not pass it on
		}
		if got.Code() != c.code || message != c.message {
			t.Errorf("%s: got %s %q, want %s %q", c.method, got.Code(), message, c.code, c.message)
		}
		if c.method != "/over_limit/Say" {
			continue
		}
		var retry *errdetails.RetryInfo
		var quota *errdetails.QuotaFailure
		for _, detail := range got.Details() {
			switch detail := detail.(type) {
			case *errdetails.RetryInfo:
				retry = detail
			case *errdetails.QuotaFailure:
				quota = detail
			}
		}
		if d := retry.GetRetryDelay().AsDuration(); d != 6500*time.Millisecond {
			t.Errorf("%s: RetryInfo is %v, want 6.5 s", c.method, d)
		}
		if v := quota.GetViolations(); len(v) != 1 || v[0].GetSubject() != "per-plan" {
			t.Errorf("%s: QuotaFailure is %v, want per-plan", c.method, v)
		}
	}
}

// testMetadata reads the dynamic metadata, which Envoy writes into a header: of allowed requests, and over gRPC also
// of denied ones.
func testMetadata(t *testing.T, g *gateway, service string) {
	key := func(name string) string {
		if service == "http" {
			return "x-ext-authz-" + strings.ReplaceAll(name, "_", "-")
		}
		return name
	}
	number := func(n int) any {
		if service == "http" {
			return strconv.Itoa(n)
		}
		return float64(n)
	}
	for _, c := range []struct {
		path string
		want map[string]any
	}{
		{"/allowed", map[string]any{
			"owner": "ann", "plan": "gold", "method": "api_key", "key_id": "k-17", "reason": "allowed",
			"domain": "shop", "rule": "plan_gold", "remaining": number(4), "decided_by": "store",
		}},
		{"/over_limit", map[string]any{"owner": "ann", "reason": "over_limit", "rule": "plan_gold", "remaining": number(0)}},
		{"/credential_limit", map[string]any{"limit": map[string]any{"requests_per_unit": number(42), "unit": "HOUR"}}},
	} {
		if service == "http" && c.path != "/allowed" {
			continue // an HTTP service can send only texts, and only for allowed requests
		}
		resp, _ := g.get(t, service, c.path)
		var got map[string]any
		if err := json.Unmarshal([]byte(resp.Header.Get("x-metadata")), &got); err != nil {
			t.Fatalf("%s: %v in %v", c.path, err, resp.Header)
		}
		for name, want := range c.want {
			if diff := cmp.Diff(want, got[key(name)]); diff != "" {
				t.Errorf("%s: %s (-want +got)\n%s\nin %v", c.path, name, diff, got)
			}
		}
	}
}

// testRead checks the requests that the authorizer receives.
func testRead(t *testing.T, g *gateway) {
	twice := []string{"x-api-key", "k1", "x-api-key", "k2", "X-Envoy-Source", "192.0.2.1", "x-forwarded-for", "192.0.2.2"}
	for service, want := range map[string][]string{"grpc": {"k1,k2"}, "raw": {"k1", "k2"}, "http": {"k1,k2"}} {
		path := "/allowed//x/../%2e;y/" + service
		g.get(t, service, path+"?q=1", twice...)
		r := g.authorizer.last(t, path)
		if got := r.Headers.Values("x-api-key"); !slices.Equal(got, want) {
			t.Errorf("%s: got x-api-key %q, want %q", service, got, want)
		}
		if r.Method != http.MethodGet || r.Path != path+"?q=1" || r.Host == "" || r.Source != "127.0.0.1" || !r.HTTP {
			t.Errorf("%s: got %+v", service, r)
		}
		wantDomain := "shop"
		if service == "http" {
			wantDomain = ""
		}
		if r.Extensions["domain"] != wantDomain {
			t.Errorf("%s: got extensions %v, want domain %q", service, r.Extensions, wantDomain)
		}
		if got := r.Headers.Values("x-forwarded-for"); !slices.Equal(got, []string{"192.0.2.2"}) {
			t.Errorf("%s: got x-forwarded-for %q, want the client's", service, got)
		}
	}
}

// testHeld sends requests at the same time, each of which is held until its time.
func testHeld(t *testing.T, g *gateway) {
	const n = 6
	var slots [n]atomic.Int64
	var group sync.WaitGroup
	begin := time.Now()
	for range n {
		group.Go(func() {
			_, body := g.get(t, "grpc", "/held")
			took := time.Since(begin)
			var got seen
			if err := json.Unmarshal([]byte(body), &got); err != nil {
				t.Error(err)
			}
			slot, err := strconv.Atoi(got.Header.Get("X-Slot"))
			if err != nil || slot < 0 || slot >= n {
				t.Errorf("slot %d, %v", slot, err)
				return
			}
			slots[slot].Add(1)
			if least := time.Duration(slot) * outflow; took < least {
				t.Errorf("number %d left after %v, want at least %v", slot, took, least)
			}
		})
	}
	group.Wait()
	for slot := range slots {
		if times := slots[slot].Load(); times != 1 {
			t.Errorf("%d requests left as number %d, want 1", times, slot)
		}
	}
}

// testGivesUp checks that an answer is held no longer when the client of Envoy has gone.
func testGivesUp(t *testing.T, g *gateway) {
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Listener(service)+"/slow", nil)
			if err != nil {
				t.Fatal(err)
			}
			gone := make(chan error)
			go func() { // ends when cancelled
				_, err := http.DefaultTransport.RoundTrip(req)
				gone <- err
			}()
			g.awaitHeld(t, 1)
			cancel()
			if err := <-gone; err == nil {
				t.Error("the cancelled request was answered")
			}
			g.awaitHeld(t, 0)
		})
	}
}

func (g *gateway) awaitHeld(t *testing.T, n int64) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if got := g.queue.Held.Load(); got != n {
			return fmt.Errorf("%d are", got)
		}
		return nil
	}, fmt.Sprintf("%d answers to be held", n))
}

// testTCP checks that a connection, which has no request, is also decided.
func testTCP(t *testing.T, g *gateway) {
	for _, allowed := range []bool{false, true} {
		g.authorizer.connections.Store(allowed)
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.Listener("tcp")+"/", nil)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if (err == nil) != allowed {
			t.Errorf("allowed is %v, and the client got %v", allowed, err)
		}
		if r := g.authorizer.last(t, ""); r.HTTP || r.Source != "127.0.0.1" || len(r.Headers) > 0 {
			t.Errorf("got %+v, want a source only", r)
		}
	}
}
