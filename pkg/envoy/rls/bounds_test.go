package rls_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/wire"
)

// TestBounds sends requests at their bounds and beyond, over gRPC and to /json.
func TestBounds(t *testing.T) {
	const rules = `domain: shop`
	client := ratelimitv3.NewRateLimitServiceClient(serve(t, rules, nil))
	server := newFlow(t, rules, nil)
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
	server := newFlow(t, `domain: d`, nil)
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

func postJSON(f *flow.Flow, body string) (int, string) {
	w := httptest.NewRecorder()
	f.ServeJSON(w, httptest.NewRequest(http.MethodPost, "/json", strings.NewReader(body)))
	return w.Code, w.Body.String()
}
