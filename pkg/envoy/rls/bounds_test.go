package rls_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// TestBounds sends requests at their bounds and beyond, over gRPC and to /json.
func TestBounds(t *testing.T) {
	const rules = `domain: shop`
	client := ratelimitv3.NewRateLimitServiceClient(serve(t, rules, nil))
	server := newServer(t, rules, nil)
	descriptor := func(entries int) string {
		// The content of values does not count.
		return "descriptors {" + strings.Repeat(`entries {key: "{" value: "\"{}[{\\" }`, entries) +
			"limit {unit: HOUR requests_per_unit: 99} hits_addend {value: 1}} "
	}
	for name, c := range map[string]struct{ request, want string }{
		"at both bounds":       {strings.Repeat(descriptor(16), 64), ""},
		"too many descriptors": {strings.Repeat(descriptor(1), 65), "a request has at most 64 descriptors"},
		"too many entries":     {descriptor(1) + descriptor(17), "descriptor 1: a descriptor has at most 16 entries"},
	} {
		t.Run(name, func(t *testing.T) {
			m := new(ratelimitv3.RateLimitRequest)
			if err := prototext.Unmarshal([]byte(`domain: "shop" `+c.request), m); err != nil {
				t.Fatal(err)
			}
			want := "OK"
			if c.want != "" {
				want = "InvalidArgument: " + c.want
			}
			_, err := client.ShouldRateLimit(t.Context(), m)
			got := strings.TrimSuffix(fmt.Sprintf("%s: %s", status.Code(err), status.Convert(err).Message()), ": ")
			if got != want {
				t.Errorf("over gRPC: got %q, want %q", got, want)
			}
			body, err := protojson.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			code, text := postJSON(server, string(body))
			if c.want == "" && code != http.StatusOK || c.want != "" && (code != http.StatusBadRequest || text != c.want+"\n") {
				t.Errorf("/json: got %d %s, want %q", code, text, c.want)
			}
		})
	}
}

// TestEmptyDescriptors sends messages of many empty descriptors or entries. Reading stops at the bound.
func TestEmptyDescriptors(t *testing.T) {
	const n = 300_000
	for name, message := range map[string]string{
		"descriptors": "\x0a\x01d" + strings.Repeat("\x12\x00", n),
		"entries":     "\x0a\x01d" + string(wire.AppendText(nil, 2<<3|wire.Bytes, strings.Repeat("\x0a\x00", n))),
	} {
		q, err := rls.Unmarshal(message)
		if err == nil || len(q.Descriptors) > 64 {
			t.Errorf("%s: %d descriptors, error %v", name, len(q.Descriptors), err)
		}
		conn := serve(t, `domain: d`, nil)
		err = conn.Invoke(t.Context(), rls.Method, []byte(message), new(ratelimitv3.RateLimitResponse),
			grpc.ForceCodec(rawRequest{}))
		if got := status.Code(err).String(); got != "InvalidArgument" {
			t.Errorf("%s over gRPC: %v, want InvalidArgument", name, err)
		}
	}
	server := newServer(t, `domain: d`, nil)
	for name, body := range map[string]string{
		"descriptors": `{"domain":"d","descriptors":[{}` + strings.Repeat(`,{}`, n) + `]}`,
		"entries":     `{"domain":"d","descriptors":[{"entries":[{}` + strings.Repeat(`,{}`, n) + `]}]}`,
	} {
		// The generated code would need more than a hundred times as many allocations.
		allocated := testing.AllocsPerRun(1, func() {
			code, text := postJSON(server, body)
			if code != http.StatusBadRequest || !strings.Contains(text, "at most 64 descriptors") {
				t.Errorf("%s to /json: %d %s, want 400", name, code, text)
			}
		})
		if allocated > 1000 {
			t.Errorf("%s to /json: %v allocations, want fewer than 1000", name, allocated)
		}
	}
}

func postJSON(server http.Handler, body string) (int, string) {
	w := httptest.NewRecorder()
	server.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
	return w.Code, w.Body.String()
}

// TestLargeRequestsKeepNoMemory sends batches in which one request is as large as it can be, each time another one. The
// memory that is kept for the next batches must not grow to that of a batch of large requests, some 3.6 MB.
func TestLargeRequestsKeepNoMemory(t *testing.T) {
	server := newServer(t, `
domain: shop
descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}]
`, nil)
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
	calls := make([]wire.Call, 128)
	answer := func(largest int) {
		for i := range calls {
			calls[i] = wire.Call{Request: small}
		}
		calls[largest].Request = large
		server.AnswerAll(t.Context(), calls, nil, func([]byte) {})
	}
	held := func() int64 {
		clear(calls)
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
