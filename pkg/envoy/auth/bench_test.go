package auth_test

import (
	"math"
	"testing"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// benchPolicy is the policy of `make bench`.
const benchPolicy = `
domain: bench
descriptors:
  - { key: owner, rate_limit: { unit: minute, requests_per_unit: 40000000, algorithm: token_bucket } }
authz:
  credentials: [{ api_key: { header: x-api-key } }]
  limits: [{ actions: [{ credential: { field: owner } }] }]
`

// TestAnswerAllAllocates checks the promise of docs/design.md: no allocation for a Check whose limit allows it.
func TestAnswerAllAllocates(t *testing.T) {
	answer, least := answeringAll(t, 1), math.Inf(1)
	for range 100 { // the race detector and the garbage collector drop pooled memory at times
		least = min(least, testing.AllocsPerRun(1, answer))
	}
	if least > 0 {
		t.Errorf("%v allocations, want none", least)
	}
}

// BenchmarkAnswerAll answers a batch of requests of a browser with an API key, as the native transport does.
func BenchmarkAnswerAll(b *testing.B) {
	const size = 16
	answer := answeringAll(b, size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%size == 0 {
			answer()
		}
	}
}

// answeringAll returns a function that answers a batch of some requests, again and again.
func answeringAll(t testing.TB, size int) func() {
	t.Helper()
	server := newChecked(t, benchPolicy)
	m := parse(t, `attributes {
		source { address { socket_address { address: "192.0.2.1" } } }
		request { http { id: "1" method: "GET" host: "shop.example" path: "/v1/users/7?page=2" scheme: "https" } }
	}`)
	m.GetAttributes().GetRequest().GetHttp().Headers = map[string]string{
		":authority": "shop.example", ":method": "GET", ":path": "/v1/users/7?page=2", ":scheme": "https",
		"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "accept-encoding": "gzip, deflate, br",
		"accept-language": "en-US,en;q=0.5", "cache-control": "no-cache", "dnt": "1",
		"referer":        "https://shop.example/v1/users",
		"sec-fetch-dest": "document", "sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin",
		"user-agent":      "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https", "x-request-id": "5b0e0b0e-5b0e-4b0e-8b0e-5b0e0b0e5b0e",
		"cookie": "session=0123456789abcdef0123456789abcdef; theme=dark", "x-api-key": checkedKey,
	}
	calls := make([]wire.Call, size)
	message := string(marshal(t, m))
	var out []byte
	keep := func(b []byte) { out = b }
	return func() {
		for i := range calls {
			calls[i] = wire.Call{Request: message}
		}
		server.AnswerAll(t.Context(), calls, out[:0], keep)
		if calls[0].Err != nil || calls[0].Reply[3] != 0 { // the code of the status
			t.Fatalf("%v, %q", calls[0].Err, calls[0].Reply)
		}
	}
}
