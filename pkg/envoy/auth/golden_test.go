package auth_test

import (
	"bytes"
	gocmp "cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

var update = flag.Bool("update", false, "write the answers into testdata")

// authorizer is a function as an Authorizer.
type authorizer func(ctx context.Context, r *authz.Request) authz.Decision

func (f authorizer) Begin(ctx context.Context, r *authz.Request, p *authz.Pending) {
	d := f(ctx, r)
	d.ToUpstream, d.Remove, d.ToClient = slices.Clone(d.ToUpstream), slices.Clone(d.Remove), slices.Clone(d.ToClient)
	p.Decision = d
}

func (f authorizer) BeginNow(r *authz.Request, p *authz.Pending) bool {
	f.Begin(context.Background(), r, p)
	return true
}

func (authorizer) Finish(*authz.Pending, *ratelimit.Result) {}

// newFlow returns a flow with these settings. Missing ones get values that have no effect.
func newFlow(cfg flow.Config) *flow.Flow {
	cfg.Queue = gocmp.Or(cfg.Queue, flow.NewQueue(1000))
	cfg.Calls = telemetry.NewCalls(prometheus.NewRegistry())
	cfg.Panicked = func(_ string, value any) { panic(value) }
	cfg.HTTP.Log, cfg.HTTP.Timeout = slog.New(slog.DiscardHandler), gocmp.Or(cfg.HTTP.Timeout, time.Minute)
	cfg.HTTP.NeedsAddress = func() bool { return false }
	return flow.New(cfg)
}

// decided returns an authorizer that always returns this decision.
func decided(d authz.Decision) authorizer {
	return func(_ context.Context, r *authz.Request) authz.Decision { return withLookalikes(d, r) }
}

// withLookalikes returns the decision of a real authorizer. It also removes request headers whose names look like
// those of headers that the decision sets or removes.
func withLookalikes(d authz.Decision, r *authz.Request) authz.Decision {
	ours := slices.Clone(d.Remove)
	for _, h := range d.ToUpstream {
		ours = append(ours, strings.ToLower(h.Name))
	}
	d.Remove = slices.Clip(d.Remove)
	for _, h := range r.Headers {
		name := h.Name
		hyphened := strings.NewReplacer("_", "-", ".", "-", "~", "-").Replace(name)
		if name != hyphened && slices.Contains(ours, hyphened) {
			d.Remove = append(d.Remove, name)
		}
	}
	return d
}

var ann = credential.Identity{Method: "api_key", Owner: "ann", Plan: "gold", KeyID: "k-17"}

// limited is a result of a rule of 5 requests a minute.
func limited(d bucket.Decision) *ratelimit.Result {
	rule := &ratelimit.Rule{Name: "plan_gold", Limits: []ratelimit.RuleLimit{{
		Limit: bucket.Limit{Requests: 5, Window: 60_000_000}, Unit: descriptors.Minute, Policy: "per-plan",
	}}}
	applied := ratelimit.Applied{Limit: &rule.Limits[0], Decision: d, Cost: 1}
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	if d.Allowed || d.RetryAfter == bucket.Never {
		since = 0
	}
	return &ratelimit.Result{
		Allowed: d.Allowed, RetryAfter: d.RetryAfter, DeniedSince: since, Limits: []ratelimit.Applied{applied},
		Statuses: []ratelimit.Status{{Rule: rule, Binding: &applied}},
	}
}

// goldenDecisions have their answers in testdata, each in a file of its name.
var goldenDecisions = map[string]authz.Decision{
	"zero": {},
	"allowed": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed, Domain: "shop", Identity: ann,
		Limits:      limited(bucket.Decision{Allowed: true, Remaining: 4}),
		ToUpstream:  []reply.Header{{Name: "X-Owner", Value: "ann"}, {Name: "x-plan", Value: "gold"}},
		Remove:      []string{"x-api-key", "x-key-id"},
		RemoveQuery: []string{"api_key"},
		ToClient: []reply.Header{
			{Name: "ratelimit", Value: `"per-plan";r=4;t=12`}, {Name: "ratelimit-policy", Value: `"per-plan";q=5;w=60`},
		},
	},
	"anonymous": {
		Verdict: authz.Allowed, Reason: reply.ReasonAnonymous, Domain: "shop",
		Identity: credential.Identity{Method: "anonymous"},
		Remove:   []string{"x-owner", "x-plan", "x-key-id"},
	},
	"credential_limit": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed,
		Identity: credential.Identity{
			Method: "api_key", Owner: "bob", Limit: &ratelimit.LimitSpec{Requests: 42, Unit: descriptors.Hour},
		},
	},
	"credential_limit_of_weeks": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed,
		Identity: credential.Identity{
			Method: "api_key", Owner: "bob", Limit: &ratelimit.LimitSpec{Requests: 42, Unit: descriptors.Week},
		},
	},
	"credential_limit_of_a_calendar": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed,
		Identity: credential.Identity{
			Method: "api_key", Owner: "bob", Limit: &ratelimit.LimitSpec{Requests: 42, Unit: descriptors.Day, Calendar: "UTC"},
		},
	},
	"credential_limit_of_64_bits": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed,
		Identity: credential.Identity{
			Method: "api_key", Owner: "bob", Limit: &ratelimit.LimitSpec{Requests: 1 << 32, Unit: descriptors.Day},
		},
	},
	"absent": {
		Reason: reply.ReasonAbsent, Status: 401, Domain: "shop",
		ToClient:    []reply.Header{{Name: "www-authenticate", Value: `ApiKey realm="shop"`}},
		Body:        []byte(`{"title":"Unauthorized","status":401}`),
		ContentType: reply.ProblemType,
	},
	"invalid": {
		Reason: reply.ReasonInvalid, Status: 403, Domain: "shop", Body: []byte(`{"status":403}`),
		ContentType: reply.ProblemType,
	},
	"too_large": {
		Reason: reply.ReasonTooLarge, Status: 431, Domain: "shop", Body: []byte(`{"status":431}`),
		ContentType: reply.ProblemType,
	},
	"over_limit": {
		Reason: reply.ReasonOverLimit, Status: 429, Domain: "shop", Identity: ann,
		Limits:      limited(bucket.Decision{RetryAfter: 6_500_000, ResetAfter: 60_000_000}),
		ToClient:    []reply.Header{{Name: "retry-after", Value: "7"}},
		Body:        []byte(`{"title":"Too Many Requests","status":429}`),
		ContentType: reply.ProblemType,
	},
	"never_within_the_limit": {
		Reason: reply.ReasonOverLimit, Status: 429, Identity: ann,
		Limits: limited(bucket.Decision{RetryAfter: bucket.Never}),
	},
	"undecided": {
		Verdict: authz.Undecided, Reason: reply.ReasonUndecided, Status: 503, Domain: "shop",
		Body: []byte(`{"status":503}`), ContentType: reply.ProblemType,
	},
	"undecided_with_times": {
		Verdict: authz.Undecided, Reason: reply.ReasonUndecided,
		ToClient: []reply.Header{{Name: "Retry-After", Value: "30"}},
	},
	// Over HTTP, its status would allow the request.
	"quota": {
		Verdict: authz.Answered, Reason: reply.ReasonQuota, Status: 200, Domain: "shop",
		Identity: credential.Identity{Owner: "ann"},
		ToClient: []reply.Header{{Name: "cache-control", Value: "no-store"}},
		Body:     []byte(`{"limits":[]}`), ContentType: reply.QuotaType,
	},
	// The following are mistakes of an authorizer.
	"status_of_a_success": {Reason: reply.ReasonDenied, Status: 200},
	"status_of_an_error":  {Reason: reply.ReasonDenied, Status: 503},
	"unknown_verdict":     {Verdict: 77, Status: 302},
	"unsendable_headers": {
		Verdict: authz.Allowed, Reason: reply.ReasonAllowed,
		ToUpstream: []reply.Header{
			{Name: "x-owner", Value: "ann\r\nx-admin: yes"}, {Name: "x-plan", Value: ""},
			{Name: "x bad", Value: "v"}, {Name: ":path", Value: "/admin"},
			{Name: "content-length", Value: "0"}, {Name: "x-invalid", Value: "caf\xff"}, {Name: "x-twice", Value: "v"},
		},
		Remove: []string{"X-Twice", "host", ":method", "bad name"},
		ToClient: []reply.Header{
			{Name: "x-ok", Value: "1"}, {Name: "x-nul", Value: "\x00"},
			{Name: "transfer-encoding", Value: "chunked"}, {Name: "x-ok", Value: "2"},
		},
	},
}

// goldenRequest has many headers that clients must not be able to set.
const goldenRequest = `
attributes {
  source { address { socket_address { address: "192.0.2.1" } } }
  request { http {
    method: "GET" path: "/v1/items?%%61pi_key=s3cret&x=1&api_key=s3cret&api%%ZZkey=1" host: "example.org"
    headers { key: "content-type" value: %q }
    headers { key: "x-owner" value: "evil" } headers { key: "x_owner" value: "evil" }
    headers { key: "x-key_id" value: "evil" }
  } }
}`

// TestGolden sends a request of an HTTP client and one of a gRPC client to both services, for each decision.
func TestGolden(t *testing.T) {
	for name, d := range goldenDecisions {
		t.Run(name, func(t *testing.T) {
			server := newFlow(flow.Config{Authorizer: decided(d)})
			client := authv3.NewAuthorizationClient(serve(t, server))
			got := new(txtar.Archive)
			clients := []string{"application/json", "application/grpc"}
			if d.Verdict == authz.Allowed {
				clients = clients[:1] // the answer is equal for both
			}
			for _, contentType := range clients {
				res, err := client.Check(t.Context(), parse(t, fmt.Sprintf(goldenRequest, contentType)))
				if err != nil {
					t.Fatal(err)
				}
				text := prototext.MarshalOptions{Multiline: true}.Format(res)
				got.Files = append(got.Files,
					// prototext varies its spaces on purpose.
					txtar.File{Name: "Check of " + contentType, Data: []byte(strings.ReplaceAll(text, ":  ", ": "))},
					txtar.File{Name: "HTTP of " + contentType, Data: overHTTP(t, server, contentType)})
			}
			compare(t, filepath.Join("testdata", name+".txt"), got)
		})
	}
}

func compare(t *testing.T, file string, got *txtar.Archive) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Files) != len(got.Files) {
		t.Fatalf("%s has %d parts, want %d", file, len(want.Files), len(got.Files))
	}
	for i, f := range got.Files {
		diff := cmp.Diff(string(want.Files[i].Data), string(f.Data))
		if strings.HasPrefix(f.Name, "Check") {
			diff = cmp.Diff(parseResponse(t, want.Files[i].Data), parseResponse(t, f.Data), protocmp.Transform())
		}
		if diff != "" {
			t.Errorf("%s (-want +got)\n%s", f.Name, diff)
		}
	}
}

func parseResponse(t *testing.T, text []byte) *authv3.CheckResponse {
	t.Helper()
	m := new(authv3.CheckResponse)
	if err := prototext.Unmarshal(text, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// overHTTP returns the answer of the HTTP service as text, with sorted headers.
func overHTTP(t *testing.T, server *flow.Flow, contentType string) []byte {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/check/v1/items?x=1", nil)
	req.Header.Set("content-type", contentType)
	recorder := httptest.NewRecorder()
	server.Checks(http.NotFoundHandler()).ServeHTTP(recorder, req)
	var b bytes.Buffer
	fmt.Fprintln(&b, recorder.Code)
	header := recorder.Result().Header
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[name] {
			fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(name), value)
		}
	}
	if recorder.Body.Len() > 0 {
		fmt.Fprintf(&b, "\n%s\n", recorder.Body)
	}
	return b.Bytes()
}

// serve starts a server and connects to it.
func serve(t testing.TB, server *flow.Flow) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(listen(t, server), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// listen starts a server of the native transport and returns its address.
func listen(t testing.TB, server *flow.Flow) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := h2unary.New(h2unary.Config{
		Methods: flow.Methods[:], Serve: server.Serve, Panicked: func(value any) { panic(value) },
		MaxStreams: 1024, MaxMessage: 1 << 20, ConnectTimeout: 5 * time.Second,
	})
	guarded := guard.New(listener, guard.Config{Connections: 100, Bytes: 64 << 20, Metered: true})
	go func() { _ = s.Serve(guarded) }() // ends with Shutdown
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		s.Shutdown(over)
	})
	return listener.Addr().String()
}
