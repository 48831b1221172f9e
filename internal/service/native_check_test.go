package service

import (
	"context"
	"log/slog"
	"maps"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
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
	address := serveNative(t, &Settings{Transport: nativeTransport},
		newPanics(slog.New(slog.DiscardHandler), prometheus.NewRegistry()),
		rls.Config{Limiter: limiter}, auth.Config{Limiter: limiter, Authorizer: &byHost{keys: keys}})
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
	p.Decision.Verdict = authz.Allowed
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
