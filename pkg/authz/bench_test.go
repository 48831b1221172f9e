package authz_test

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/authz"
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
		Headers: authz.Headers{"x-api-key": {"key-of-ann"}, "authorization": {"Basic abc"}},
	}
	for i := range 15 {
		r.Headers[fmt.Sprintf("x-header-%d", i)] = []string{"some value of usual length"}
	}
	b.ReportAllocs()
	for b.Loop() {
		if d := a.decide(b.Context(), r); d.Verdict != authz.Allowed {
			b.Fatal(d.Reason)
		}
	}
}
