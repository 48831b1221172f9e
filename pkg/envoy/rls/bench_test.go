package rls_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
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
	server := newServer(t, fmt.Sprintf(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: %d, algorithm: token_bucket}}
  - key: tenant
    descriptors:
      - {key: path, value: "/v1/*", rate_limit: {unit: minute, requests_per_unit: 1000000000, name: paths}}
      - {key: method, rate_limit: {unit: day, requests_per_unit: 1000000000, algorithm: fixed_window}}
`, requests), []string{"draft", "body"})
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
	calls, out := []wire.Call{{Request: string(message)}}, make([]byte, 0, 4<<10)
	done := func(replies []byte) { out = replies }
	answer := func() {
		server.AnswerAll(t.Context(), calls, out[:0], done)
		if calls[0].Err != nil || len(calls[0].Reply) == 0 {
			t.Fatal(calls[0].Err)
		}
	}
	answer()
	if got := strings.Contains(string(out), "problem+json"); got != denied {
		t.Fatalf("denied: %v, want %v", got, denied)
	}
	return answer
}
