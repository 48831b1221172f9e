package flow

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// BenchmarkAnswer measures everything between two messages, as the native transport does it. The store is in memory.
// Answers have the headers of the draft, and denials have a body.
func BenchmarkAnswer(b *testing.B) {
	for _, verdict := range []string{"allowed", "denied"} {
		for _, n := range []int{1, 3, 10} {
			b.Run(fmt.Sprintf("%s/%d", verdict, n), func(b *testing.B) {
				answer := answering(b, n, verdict == "denied")
				b.ReportAllocs()
				for b.Loop() {
					answer()
				}
			})
		}
	}
}

// TestAnswerAllocates checks the promise of docs/design.md: no allocation from message to message.
func TestAnswerAllocates(t *testing.T) {
	for _, verdict := range []string{"allowed", "denied"} {
		for _, n := range []int{1, 3, 10} {
			answer, least := answering(t, n, verdict == "denied"), math.Inf(1)
			for range 100 { // the race detector and the garbage collector drop pooled memory at times
				least = min(least, testing.AllocsPerRun(1, answer))
			}
			if least > 0 {
				t.Errorf("%s, %d descriptors: %v allocations, want none", verdict, n, least)
			}
		}
	}
}

// answering returns a function that answers a request of n descriptors, again and again.
func answering(t testing.TB, n int, denied bool) func() {
	t.Helper()
	requests := 1_000_000_000
	if denied {
		requests = 0
	}
	f := newLimitFlow(t, fmt.Sprintf(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: %d, algorithm: token_bucket}}
  - key: tenant
    descriptors:
      - {key: path, value: "/v1/*", rate_limit: {unit: minute, requests_per_unit: 1000000000, name: paths}}
      - {key: method, rate_limit: {unit: day, requests_per_unit: 1000000000, algorithm: fixed_window}}
`, requests), rls.Codec{Headers: reply.Headers{Sets: []reply.Set{reply.Draft}}, ProblemBody: true})
	request := &ratelimitv3.RateLimitRequest{Domain: "shop"}
	for i := range n {
		entries := []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "tenant", Value: fmt.Sprint("tenant-", i)}}
		switch i % 3 {
		case 0:
			entries = []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "remote_address", Value: fmt.Sprint("192.0.2.", i)}}
		case 1:
			entries = append(entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: "path", Value: "/v1/orders"})
		case 2:
			entries = append(entries, &ratelimitcommon.RateLimitDescriptor_Entry{Key: "method", Value: "GET"})
		}
		request.Descriptors = append(request.Descriptors, &ratelimitcommon.RateLimitDescriptor{Entries: entries})
	}
	message, err := proto.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	text := string(message)
	arrived := time.Now()
	answer := func() {
		b := f.newSingle(t.Context())
		b.began = arrived // Serve and Answer read the clock for each read or call anyway
		c := b.add(RateLimit, text)
		b.wait()
		if c.err != nil || len(c.reply) == 0 {
			t.Fatal(c.err)
		}
		out = append(out[:0], c.reply...)
		b.release()
	}
	answer()
	if got := strings.Contains(string(out), "problem+json"); got != denied {
		t.Fatalf("denied: %v, want %v", got, denied)
	}
	return answer
}

// newLimitFlow returns a flow with these rules, a queue with 10 places and a clock that stands still.
func newLimitFlow(t testing.TB, rules string, codec rls.Codec) *Flow {
	t.Helper()
	return newHoldFlow(t, rules, codec, 0)
}

// newHoldFlow does so with a number of places for each rule, 0 for any number.
func newHoldFlow(t testing.TB, rules string, codec rls.Codec, perRule int64) *Flow {
	t.Helper()
	parsed, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(rules)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	store, err := memstore.New(memstore.Config{Clock: func() int64 { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	active := ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})
	return New(Config{
		Limiter: ratelimit.New(ratelimit.Config{
			Store: store, Fallback: store, Rules: func() *ratelimit.Rules { return active }, MaxHeldPerRule: perRule,
		}),
		RateLimit: codec, Queue: NewQueue(10), Calls: telemetry.NewCalls(prometheus.NewRegistry()),
		Panicked: func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) },
	})
}

// TestLargeRequestsKeepNoMemory sends batches in which one request is as large as it can be, each time another one. The
// memory that is kept for the next batches must not grow to that of a batch of large requests, some 3.6 MB.
func TestLargeRequestsKeepNoMemory(t *testing.T) {
	f := newLimitFlow(t, `
domain: shop
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}]
`, rls.Codec{})
	request := func(descriptors int) string {
		m := &ratelimitv3.RateLimitRequest{Domain: "shop"}
		for i := range descriptors {
			m.Descriptors = append(m.Descriptors, &ratelimitcommon.RateLimitDescriptor{
				Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(i)}},
			})
		}
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	small, large := request(1), request(64)
	const calls = 128
	answer := func(largest int) {
		b := f.newSingle(t.Context())
		for i := range calls {
			if i == largest {
				b.add(RateLimit, large)
			} else {
				b.add(RateLimit, small)
			}
		}
		b.wait()
		b.release()
	}
	held := func() int64 {
		runtime.GC() // one collection keeps what is in a pool
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	answer(0) // the store makes room for all buckets
	before := held()
	for i := range calls {
		answer(i)
	}
	if more := held() - before; more > 2560<<10 {
		t.Errorf("%d KiB are kept, want at most 2560", more>>10)
	}
}

// benchPolicy is the policy of `make bench`.
const benchPolicy = `
domain: bench
descriptors:
  - { key: owner, rate_limit: { unit: minute, requests_per_unit: 40000000, algorithm: token_bucket } }
authz:
  credentials: [{ api_key: { header: x-api-key } }]
  limits: [{ actions: [{ credential: { field: owner } }] }]
`

// TestCheckAllocates checks the promise of docs/design.md: no allocation for a Check whose limit allows it.
func TestCheckAllocates(t *testing.T) {
	answer, least := checking(t, 1), math.Inf(1)
	for range 100 { // the race detector and the garbage collector drop pooled memory at times
		least = min(least, testing.AllocsPerRun(1, answer))
	}
	if least > 0 {
		t.Errorf("%v allocations, want none", least)
	}
}

// BenchmarkCheck answers a batch of requests of a browser with an API key.
func BenchmarkCheck(b *testing.B) {
	const size = 16
	answer := checking(b, size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%size == 0 {
			answer()
		}
	}
}

// checking returns a function that answers a batch of some requests, again and again.
func checking(t testing.TB, size int) func() {
	t.Helper()
	const key = "the-only-key"
	rules, problems := file.Parse([]file.File{{Name: "bench.yaml", Content: []byte(benchPolicy)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	secret, err := apikey.NewSecret("a server secret for tests only", "")
	if err != nil {
		t.Fatal(err)
	}
	keys := new(apikey.Source)
	keys.Replace([]apikey.Record{{ID: "ann", Owner: "ann", Plan: "gold", Weak: true, Hash: secret.Hash(key)}})
	headers := reply.Headers{Sets: []reply.Set{reply.Draft}}
	policies := authz.NewPolicies(rules.Policies, ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}), headers)
	f := New(Config{
		Limiter: ratelimit.New(ratelimit.Config{Store: store, Fallback: store}),
		Authorizer: authz.New(authz.Config{
			Policies: func() *authz.Policies { return policies }, Headers: headers, ProblemBody: true,
			Checkers: map[string]credential.Checker{
				apikey.Name: apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{keys}}),
			},
		}),
		Queue: NewQueue(10), Calls: telemetry.NewCalls(prometheus.NewRegistry()),
		Panicked: func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) },
	})
	message, err := proto.Marshal(&authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "192.0.2.1"},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "1", Method: "GET", Host: "shop.example", Path: "/v1/users/7?page=2", Scheme: "https",
			Headers: map[string]string{
				":authority": "shop.example", ":method": "GET", ":path": "/v1/users/7?page=2", ":scheme": "https",
				"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "accept-encoding": "gzip, deflate, br",
				"accept-language": "en-US,en;q=0.5", "cache-control": "no-cache", "dnt": "1",
				"referer":        "https://shop.example/v1/users",
				"sec-fetch-dest": "document", "sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin",
				"user-agent":      "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
				"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https",
				"x-request-id": "5b0e0b0e-5b0e-4b0e-8b0e-5b0e0b0e5b0e",
				"cookie":       "session=0123456789abcdef0123456789abcdef; theme=dark", "x-api-key": key,
			},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	text := string(message)
	return func() {
		b := f.newSingle(t.Context())
		for range size {
			b.add(Check, text)
		}
		b.wait()
		if c := b.calls[size-1]; c.err != nil || c.reply[3] != 0 { // the code of the status
			t.Fatalf("%v, %q", c.err, c.reply)
		}
		b.release()
	}
}
