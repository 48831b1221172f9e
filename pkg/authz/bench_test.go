package authz_test

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// BenchmarkDecide decides a request with the headers of a browser and a valid API key, by a policy with access rules
// and two limits.
func BenchmarkDecide(b *testing.B) {
	a := newAuthorizer(b, []file.File{{Name: "a.yaml", Content: []byte(`
domain: shop
authz:
  credentials: [{api_key: {header: x-api-key}}, {api_key: {scheme: ApiKey}}]
  access:
    - {path: {prefix: /public/}, require: open}
    - {path: {template: "/v1/users/{id}"}, methods: [DELETE], scopes: [admin]}
    - {hosts: ["*.internal.example"], require: denied}
    - {path: {prefix: /v1}, scopes: [read]}
  limits:
    - actions: [{credential: {field: owner}}, {path: }]
    - actions: [{remote_address: {ipv4_mask: 24}}, {method: }]
  refused: [{actions: [{remote_address: {key: refused_address}}]}]
descriptors:
  - key: owner
    descriptors: [{key: path, rate_limit: {unit: second, requests_per_unit: 10000000, algorithm: token_bucket}}]
  - {key: masked_remote_address, descriptors: [{key: method, rate_limit: {unlimited: true}}]}
  - {key: refused_address, rate_limit: {unit: day, requests_per_unit: 1}}
`)}}, "")
	r := &authz.Request{
		HTTP: true, Method: "GET", Path: "/v1/users/7?a=b", Host: "shop.example", Source: "192.0.2.1",
		Headers: authz.Headers{
			{Name: "x-api-key", Value: "key-of-ann"}, {Name: "authorization", Value: "Basic abc"},
		},
	}
	for i := range 15 {
		r.Headers = append(r.Headers, reply.Header{Name: fmt.Sprintf("x-header-%d", i), Value: "some value of usual length"})
	}
	b.ReportAllocs()
	var p authz.Pending
	results := make([]ratelimit.Result, 1)
	for b.Loop() {
		a.Begin(b.Context(), r, &p)
		a.limiter.DecideAll(b.Context(), []ratelimit.Query{p.Query}, results)
		if a.Finish(&p, &results[0]); p.Decision.Verdict != authz.Allowed {
			b.Fatal(p.Decision.Reason)
		}
		p.Reset()
	}
}
