package auth_test

import (
	"fmt"
	"testing"

	"github.com/extauthz/extauthz/pkg/envoy/auth"
)

// BenchmarkCheck measures everything between two messages except the decision: a request with the headers of a
// browser, and an answer with the headers of a limit.
func BenchmarkCheck(b *testing.B) {
	m := parse(b, fullRequest)
	headers := m.GetAttributes().GetRequest().GetHttp().GetHeaders()
	for i := range 15 {
		headers[fmt.Sprintf("x-header-%d", i)] = "some value of usual length"
	}
	message := marshal(b, m)
	d := goldenDecisions["allowed"]
	b.ReportAllocs()
	for b.Loop() {
		r, err := auth.Unmarshal(message)
		if err != nil {
			b.Fatal(err)
		}
		if len(auth.Marshal(r, d)) == 0 {
			b.Fatal("no answer")
		}
	}
}
