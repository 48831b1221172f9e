package rls_test

import (
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// BenchmarkAnswer measures everything between two messages: a request of two descriptors, decided in memory, and an
// answer with the headers of the draft.
func BenchmarkAnswer(b *testing.B) {
	server := newServer(b, `
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000000, algorithm: token_bucket}}
  - {key: tenant, descriptors: [{key: path, value: "/v1/*", rate_limit: {unit: minute, requests_per_unit: 100}}]}
`, []string{"draft"})
	descriptors := []*ratelimitcommon.RateLimitDescriptor{
		{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "remote_address", Value: "192.0.2.1"}}},
		{Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{
			{Key: "tenant", Value: "acme"}, {Key: "path", Value: "/v1/orders"},
		}},
	}
	message, err := proto.Marshal(&ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: descriptors})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		answer, err := server.Answer(b.Context(), string(message), make([]byte, 0, 1<<10))
		if err != nil || len(answer) == 0 {
			b.Fatal(err)
		}
	}
}
