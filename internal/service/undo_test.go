package service

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv"
)

// gate is a store that waits before and after it decides a request, unless that undoes a hold.
type gate struct {
	ratelimit.Store
	before, after func(ctx context.Context)
}

func (g *gate) Start(ctx context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	hold := requests[0].Takes[0].Hold
	undoes := hold != nil && len(hold.Settles) > 0 && hold.Settles[0].Expires != 0
	if undoes || g.before == nil && g.after == nil {
		g.Store.Start(ctx, requests, outcomes, done)
		return
	}
	go func() { // ends when the gates open
		if g.before != nil {
			g.before(ctx)
		}
		ratelimit.Take(ctx, g.Store, requests, outcomes)
		if g.after != nil {
			g.after(ctx)
		}
		done()
	}()
}

// undoing is a service with holds in memory, behind a gate.
type undoing struct {
	gate
	rules   *ratelimit.Rules
	limiter *ratelimit.Limiter
	cfg     flow.Config
}

const undoRules = `
domain: shop
descriptors:
  - {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 5, hold: {ttl: 10m}}}
  - {key: late, rate_limit: {unit: minute, requests_per_unit: 3, algorithm: leaky_bucket, burst: 10, max_delay: 30s}}
authz:
  anonymous: allow
  limits:
    - actions: [{request_headers: {header: x-user, key: user}}]
      hold: {request_header: x-hold-id}
`

func newUndoing(t *testing.T, patience time.Duration) *undoing {
	t.Helper()
	parsed, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(undoRules)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	u := &undoing{gate: gate{Store: store}, rules: ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})}
	u.limiter = ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return u.rules }, Store: &u.gate})
	policies := authz.NewPolicies(parsed.Policies, u.rules, reply.Headers{})
	u.cfg = flow.Config{
		Limiter: u.limiter, Patience: patience,
		Authorizer: authz.New(authz.Config{Policies: func() *authz.Policies { return policies }}),
		HTTP: flow.HTTPConfig{
			Timeout: time.Minute, Log: slog.New(slog.DiscardHandler), NeedsAddress: func() bool { return false },
		},
	}
	return u
}

// expect waits until a user has this many live holds, and checks how many were undone.
func (u *undoing) expect(t *testing.T, held int64, undone uint64) {
	t.Helper()
	looks := ratelimit.New(ratelimit.Config{Rules: func() *ratelimit.Rules { return u.rules }, Store: u.Store})
	testenv.Eventually(t, func() error {
		results := make([]ratelimit.Result, 1)
		looks.DecideAll(t.Context(), []ratelimit.Query{{Domain: "shop", Descriptors: []descriptors.Descriptor{{
			Entries: []descriptors.Entry{{Key: "user", Value: "ann"}}, Hits: new(uint64),
		}}}}, results)
		counted := u.rules.All()[0].Limits[0].Counters.Undone.Load()
		if n := results[0].Limits[0].Decision.Held.Number; n != held || counted != undone {
			return fmt.Errorf("%d live holds and %d undone, want %d and %d", n, counted, held, undone)
		}
		return nil
	}, "the holds")
}

const reserve = "user=ann hold.reserve=1"

// send sends a request with descriptors.
func (p *rawClient) send(id uint32, timeout string, texts ...string) {
	message := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for _, text := range texts {
		d := new(ratelimitcommon.RateLimitDescriptor)
		for word := range strings.FieldsSeq(text) {
			key, value, _ := strings.Cut(word, "=")
			d.Entries = append(d.Entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: key, Value: value})
		}
		message.Descriptors = append(message.Descriptors, d)
	}
	content, _ := proto.Marshal(message)
	h := usualHeaders(rls.Method)
	if timeout != "" {
		h.add("grpc-timeout", timeout)
	}
	p.headers(id, h, false)
	p.data(id, true, framed(0, content))
}

// closed closes the connection for the service, and waits until that has ended it.
func (p *rawClient) closed() {
	_ = p.conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, p.conn)
}

// TestCallersLeave has callers of the native transport that leave at every moment: their holds are undone, those of
// answered calls are not.
func TestCallersLeave(t *testing.T) {
	t.Parallel()
	reset := func(p *rawClient) {
		_ = p.WriteRSTStream(3, http2.ErrCodeCancel)
		p.awaitRead()
	}
	outlast := func(*rawClient) { // the deadline of a call of a second, which has begun before
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		<-ctx.Done()
	}
	for _, c := range []struct {
		name          string
		leave         func(p *rawClient)
		before, after bool // where the store waits while the caller leaves
		entries       []string
		timeout       string
		held          int64
		undone        uint64
	}{
		{name: "an answer", leave: func(*rawClient) {}, held: 1},
		{name: "a reset after the answer", leave: func(p *rawClient) { p.answer(3); reset(p) }, held: 1},
		{name: "a reset before the decision", leave: reset, before: true, undone: 1},
		{name: "a reset after the decision", leave: reset, after: true, undone: 1},
		{name: "a lost connection before the decision", leave: (*rawClient).closed, before: true, undone: 1},
		{name: "a lost connection after the decision", leave: (*rawClient).closed, after: true, undone: 1},
		{name: "a reset while the answer is held", leave: reset, entries: []string{"late=1"}, timeout: "50S", undone: 1},
		{name: "a lost connection while the answer is held", leave: (*rawClient).closed, entries: []string{"late=1"},
			timeout: "50S", undone: 1},
		{name: "a deadline during the decision", leave: outlast, after: true, timeout: "1S", undone: 1},
		{name: "time enough", leave: func(*rawClient) {}, after: true, timeout: "50S", held: 1},
		{name: "a denied request", leave: reset, after: true, entries: []string{"user=ann hold.reserve=2",
			"user=ann hold.reserve=3", "user=ann hold.reserve=4", "user=ann hold.reserve=5", "user=ann hold.reserve=6"}},
		{name: "several holds of one id", leave: reset, after: true, entries: []string{"user=ann hold.reserve=1"}, undone: 2},
	} {
		for name, patience := range map[string]time.Duration{"": 0, ", hurried": time.Minute} {
			t.Run(c.name+name, func(t *testing.T) {
				t.Parallel()
				u := newUndoing(t, patience)
				reached, open := make(chan struct{}), make(chan struct{})
				pass := func(context.Context) { close(reached); <-open }
				if c.before {
					u.before = pass
				}
				if c.after {
					u.after = pass
				}
				if u.before == nil && u.after == nil {
					close(reached)
				}
				p := newRawClient(t, serveNative(t, newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()), u.cfg))
				if len(c.entries) > 0 && c.entries[0] == "late=1" { // the next one is held
					p.send(1, c.timeout, "late=1")
					p.answer(1)
				}
				p.send(3, c.timeout, append([]string{reserve}, c.entries...)...)
				<-reached
				if len(c.entries) > 0 && c.entries[0] == "late=1" {
					u.expect(t, 1, 0)
				}
				c.leave(p)
				close(open)
				u.expect(t, c.held, c.undone)
			})
		}
	}
}

// TestCallersOfOthersLeave is TestCallersLeave for grpc-go and HTTP.
func TestCallersOfOthersLeave(t *testing.T) {
	t.Parallel()
	ask := func(address, path, body string) func(ctx context.Context) {
		return func(ctx context.Context) {
			r, _ := http.NewRequestWithContext(ctx, http.MethodPost, address+path, strings.NewReader(body))
			r.Header.Set("X-User", "ann")
			if res, err := http.DefaultClient.Do(r); err == nil {
				_ = res.Body.Close()
			}
		}
	}
	const json = `{"domain":"shop","descriptors":[` +
		`{"entries":[{"key":"user","value":"ann"},{"key":"hold.reserve","value":"1"}]}]}`
	for name, serve := range map[string]func(t *testing.T, u *undoing) func(ctx context.Context){
		"grpc-go": func(t *testing.T, u *undoing) func(ctx context.Context) {
			t.Helper()
			bugs := newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			address := serveTransport(t, requestsOf(new(settings.Settings), bugs, u.cfg.Calls, flow.New(u.cfg)).transport())
			return func(ctx context.Context) {
				p := newRawClient(t, address)
				p.send(1, "", reserve)
				if ctx.Done() == nil {
					p.answer(1)
					return
				}
				<-ctx.Done()
				_ = p.WriteRSTStream(1, http2.ErrCodeCancel)
			}
		},
		"JSON": func(t *testing.T, u *undoing) func(ctx context.Context) {
			t.Helper()
			s := httptest.NewServer(http.HandlerFunc(flow.New(u.cfg).ServeJSON))
			t.Cleanup(s.Close)
			return ask(s.URL, "/json", json)
		},
		"a check over HTTP": func(t *testing.T, u *undoing) func(ctx context.Context) {
			t.Helper()
			s := httptest.NewServer(flow.New(u.cfg).Checks(nil))
			t.Cleanup(s.Close)
			return ask(s.URL, "/check/x", "")
		},
	} {
		for _, where := range []string{"", ", before the decision", ", after the decision"} {
			t.Run(name+where, func(t *testing.T) {
				t.Parallel()
				u := newUndoing(t, 0)
				u.cfg.Queue, u.cfg.Calls = flow.NewQueue(1), telemetry.NewCalls(prometheus.NewRegistry())
				u.cfg.Panicked = func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) }
				call := serve(t, u)
				if where == "" {
					call(context.Background())
					u.expect(t, 1, 0)
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				pass := func(caller context.Context) {
					cancel()
					<-caller.Done()
				}
				if u.before = pass; where == ", after the decision" {
					u.before, u.after = nil, pass
				}
				call(ctx)
				u.expect(t, 0, 1)
			})
		}
	}
}

// TestSettledWithoutCaller: a settlement is carried out, once, although its caller has gone or has no time.
func TestSettledWithoutCaller(t *testing.T) {
	t.Parallel()
	u := newUndoing(t, time.Minute) // all callers with a deadline are hurried
	p := newRawClient(t, serveNative(t, newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()), u.cfg))
	p.send(1, "", reserve)
	p.send(3, "", reserve)
	if got := p.answer(3); got != "status 0" {
		t.Fatal(got)
	}
	u.expect(t, 2, 0)
	reached, gone := make(chan context.Context), make(chan struct{})
	u.before = func(ctx context.Context) { reached <- ctx; <-gone }
	p.send(5, "1S", "user=ann hold.settle=1")
	ctx := <-reached
	if ctx.Done() != nil {
		t.Error("the caller of a settlement ends it")
	}
	_ = p.WriteRSTStream(5, http2.ErrCodeCancel)
	p.awaitRead()
	close(gone)
	u.expect(t, 1, 0)
}
