package rls_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/tools/txtar"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/grpcgo"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/telemetry"
	"github.com/extauthz/extauthz/test/testenv/testgrpc"
)

var update = flag.Bool("update", false, "write the answers into testdata")

// TestGolden sends each request of testdata/*.txt to a server and compares its answer. A case is an archive of
// rules.yaml, settings, and alternating files "request" and "response". The settings are headers, body, metadata,
// strict, and broken for a store that cannot decide.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { golden(t, file) })
	}
}

func golden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content := map[string]string{}
	for _, f := range archive.Files {
		content[f.Name] = string(f.Data)
	}
	client := ratelimitv3.NewRateLimitServiceClient(serve(t, content["rules.yaml"], strings.Fields(content["settings"])))
	for i, f := range archive.Files {
		if f.Name != "request" {
			continue
		}
		req := new(ratelimitv3.RateLimitRequest)
		if err := prototext.Unmarshal(f.Data, req); err != nil {
			t.Fatal(err)
		}
		got := answer(t.Context(), client, req)
		if *update {
			archive.Files[i+1].Data = []byte(got)
			continue
		}
		want := string(archive.Files[i+1].Data)
		if diff := diffAnswers(want, got); diff != "" {
			t.Errorf("request %d: %s\n(-want +got)\n%s", i, f.Data, diff)
		}
	}
	if *update {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func answer(ctx context.Context, client ratelimitv3.RateLimitServiceClient, req *ratelimitv3.RateLimitRequest) string {
	res, err := client.ShouldRateLimit(ctx, req)
	if err != nil {
		return fmt.Sprintf("error: %s: %s\n", status.Code(err), status.Convert(err).Message())
	}
	// prototext varies its spaces on purpose.
	return strings.ReplaceAll(prototext.MarshalOptions{Multiline: true}.Format(res), ":  ", ": ")
}

// diffAnswers compares messages as messages, and errors as text.
func diffAnswers(want, got string) string {
	if strings.HasPrefix(want, "error") || strings.HasPrefix(got, "error") {
		return cmp.Diff(want, got)
	}
	var messages [2]ratelimitv3.RateLimitResponse
	for i, text := range []string{want, got} {
		if err := prototext.Unmarshal([]byte(text), &messages[i]); err != nil {
			return err.Error()
		}
	}
	return cmp.Diff(&messages[0], &messages[1], protocmp.Transform())
}

// newFlow returns a flow with these rules and a clock that stands still.
func newFlow(t testing.TB, rules string, settings []string) *flow.Flow {
	t.Helper()
	parsed, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(rules)}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	store, err := memstore.New(memstore.Config{Clock: now.UnixMicro})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	limits := ratelimit.Config{Store: store, Fallback: store, Now: func() time.Time { return now }}
	codec := rls.Codec{Headers: reply.Headers{
		LimitName: "ratelimit-limit", RemainingName: "ratelimit-remaining", ResetName: "ratelimit-reset",
	}}
	for _, s := range settings {
		switch s {
		case "body":
			codec.ProblemBody = true
		case "metadata":
			codec.DynamicMetadata = true
		case "strict":
			limits.Strict, codec.Strict = true, true
		case "broken":
			limits.Store = broken{}
		default:
			var ok bool
			if codec.Headers.Sets, ok = reply.ParseSets(s); !ok {
				t.Fatalf("no sets: %q", s)
			}
		}
	}
	active := ratelimit.NewRules(parsed.Domains, ratelimit.RulesOptions{})
	limits.Rules = func() *ratelimit.Rules { return active }
	return flow.New(flow.Config{
		Limiter: ratelimit.New(limits), RateLimit: codec, Queue: flow.NewQueue(10),
		Calls:    telemetry.NewCalls(prometheus.NewRegistry()),
		Panicked: func(where string, value any) { t.Errorf("a panic in %s: %v", where, value) },
	})
}

// serve starts a gRPC server with such a flow and connects to it.
func serve(t testing.TB, rules string, settings []string) *grpc.ClientConn {
	t.Helper()
	return testgrpc.Serve(t, grpcgo.New(grpcgo.Config{
		Flow: newFlow(t, rules, settings), MaxMessage: 1 << 20, ConnectTimeout: time.Minute,
	}).Server)
}

// broken is a store that cannot decide.
type broken struct{}

func (broken) Start(_ context.Context, _ []bucket.Request, outcomes []bucket.Outcome, done func()) {
	defer done()
	for i := range outcomes {
		outcomes[i].Err = fmt.Errorf("the store is unavailable: %w", ratelimit.ErrOutcomeUnknown)
	}
}

// TestInvalidUTF8 sends a header that is not UTF-8, as a client of Envoy can. It must still be limited.
func TestInvalidUTF8(t *testing.T) {
	const rules = `
domain: d
descriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: fixed_window}}]
`
	conn := serve(t, rules, []string{"metadata"})
	message := []byte("\x0a\x01d\x12\x0b\x0a\x09\x0a\x01k\x12\x04a\xff\xfe\x00")
	for _, want := range []ratelimitv3.RateLimitResponse_Code{
		ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT,
	} {
		res := new(ratelimitv3.RateLimitResponse)
		err := conn.Invoke(t.Context(), rls.Method, message, res, grpc.ForceCodec(rawRequest{}))
		if err != nil || res.GetOverallCode() != want {
			t.Fatalf("%v, %v; want %v", res, err, want)
		}
	}
	// Other bytes belong to another bucket.
	res := new(ratelimitv3.RateLimitResponse)
	message = bytes.Replace(message, []byte{0xff}, []byte{0xfd}, 1)
	err := conn.Invoke(t.Context(), rls.Method, message, res, grpc.ForceCodec(rawRequest{}))
	if err != nil || res.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		t.Fatalf("%v, %v; want OK", res, err)
	}
}
