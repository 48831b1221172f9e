package ratelimit_test

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// BenchmarkDecideAll decides queries of two descriptors with a limit each, in memory. An operation is one query.
func BenchmarkDecideAll(b *testing.B) {
	rules, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000000, algorithm: token_bucket}}
  - {key: tenant, descriptors: [{key: path, value: "/v1/*", rate_limit: {unit: minute, requests_per_unit: 100}}]}
`)}}, file.Config{})
	if err := problems.Err(); err != nil {
		b.Fatal(err)
	}
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	active := ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{})
	limiter := ratelimit.New(ratelimit.Config{
		Rules: func() *ratelimit.Rules { return active }, Store: store, Fallback: store,
	})
	for _, size := range []int{1, 64} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			queries, results := make([]ratelimit.Query, size), make([]ratelimit.Result, size)
			for i := range queries {
				queries[i] = ratelimit.Query{Domain: "shop", Descriptors: []descriptors.Descriptor{
					{Entries: []descriptors.Entry{{Key: "remote_address", Value: fmt.Sprintf("192.0.2.%d", i)}}},
					{Entries: []descriptors.Entry{{Key: "tenant", Value: fmt.Sprint(i)}, {Key: "path", Value: "/v1/orders"}}},
				}}
			}
			b.ReportAllocs()
			for i := 0; i < b.N; i += size {
				limiter.DecideAll(b.Context(), queries, results)
			}
		})
	}
}
