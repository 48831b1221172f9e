package auth_test

import (
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

// BenchmarkAnswerAll answers a batch of requests of a browser with an API key, as the native transport does.
func BenchmarkAnswerAll(b *testing.B) {
	server := newChecked(b, benchPolicy)
	m := parse(b, `attributes {
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
	const size = 16
	var calls [size]wire.Call
	message := string(marshal(b, m))
	var out []byte
	keep := func(b []byte) { out = b }
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		calls[i%size] = wire.Call{Request: message}
		if i%size < size-1 {
			continue
		}
		server.AnswerAll(b.Context(), calls[:], out[:0], keep)
		if calls[0].Err != nil || calls[0].Reply[3] != 0 { // the code of the status
			b.Fatalf("%v, %q", calls[0].Err, calls[0].Reply)
		}
	}
}
