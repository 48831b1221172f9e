package auth_test

import (
	gocmp "cmp"
	"slices"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

func parse(t testing.TB, text string) *authv3.CheckRequest {
	t.Helper()
	m := new(authv3.CheckRequest)
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func marshal(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fullRequest is a request of Envoy with a field of every kind.
const fullRequest = `
attributes {
  source {
    address { socket_address { address: "192.0.2.1" port_value: 4711 } } principal: "spiffe://example.org/ns/a/sa/b"
  }
  destination { address { socket_address { address: "192.0.2.2" port_value: 443 } } principal: "another principal" }
  request {
    time { seconds: 1 }
    http {
      id: "17" method: "GET" path: "/v1/items?x=1" host: "example.org" scheme: "https" size: -1 protocol: "HTTP/2"
      headers { key: ":path" value: "/v1/items?x=1" }
      headers { key: "x-api-key" value: "k1,k2" }
      headers { key: "Accept" value: "*/*" }
      body: "a body"
    }
  }
  context_extensions { key: "domain" value: "shop" }
  metadata_context {
    filter_metadata {
      key: "envoy.filters.http.jwt_authn"
      value {
        fields { key: "sub" value { string_value: "ann" } }
        fields { key: "exp" value { number_value: 1.5 } }
        fields { key: "admin" value { bool_value: true } }
        fields { key: "nothing" value { null_value: NULL_VALUE } }
        fields { key: "unset" value { } }
        fields { key: "roles" value { list_value { values { string_value: "a" } values { struct_value { } } } } }
        fields { key: "address" value { struct_value { fields { key: "city" value { string_value: "Riga" } } } } }
      }
    }
  }
  tls_session { sni: "example.org" }
}`

// headersOf returns headers, given as name, value, name, value.
func headersOf(pairs ...string) (headers authz.Headers) {
	for i := 0; i < len(pairs); i += 2 {
		headers = append(headers, reply.Header{Name: pairs[i], Value: pairs[i+1]})
	}
	return headers
}

// sorted compares headers in any order, because a map has none.
var sorted = cmpopts.SortSlices(func(a, b reply.Header) int {
	return gocmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Value, b.Value))
})

func TestRequest(t *testing.T) {
	for _, c := range []struct {
		name, message string
		want          authz.Request
	}{
		{"all fields", fullRequest, authz.Request{
			HTTP: true, Method: "GET", Host: "example.org", Path: "/v1/items?x=1",
			Headers: headersOf(":path", "/v1/items?x=1", "x-api-key", "k1,k2", "accept", "*/*"),
			Source:  "192.0.2.1", Principal: "spiffe://example.org/ns/a/sa/b",
			Extensions: map[string]string{"domain": "shop"},
			Metadata: map[string]map[string]any{"envoy.filters.http.jwt_authn": {
				"sub": "ann", "exp": 1.5, "admin": true, "nothing": nil, "unset": nil,
				"roles": []any{"a", map[string]any{}}, "address": map[string]any{"city": "Riga"},
			}},
		}},
		{"encode_raw_headers: each value by itself", `attributes { request { http { header_map {
			headers { key: "x-api-key" raw_value: "k1" } headers { key: "x-api-key" raw_value: "k\xff2" }
			headers { key: "x-other" value: "v" }
		} } } }`, authz.Request{HTTP: true, Headers: headersOf("x-api-key", "k1", "x-api-key", "k\xff2", "x-other", "v")}},
		{"a connection of a TCP listener",
			`attributes { source { address { socket_address { address: "192.0.2.1" } } principal: "cn" } }`,
			authz.Request{Source: "192.0.2.1", Principal: "cn"}},
		{"a client on a Unix socket",
			`attributes { source { address { pipe { path: "/run/envoy.sock" } } } request { http { } } }`,
			authz.Request{HTTP: true, Source: "/run/envoy.sock"}},
		{"an internal listener of Envoy",
			`attributes { source { address { envoy_internal_address { server_listener_name: "x" } } } }`,
			authz.Request{}},
		{"nothing", ``, authz.Request{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := auth.Unmarshal(marshal(t, parse(t, c.message)))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, got, cmpopts.EquateEmpty(), sorted); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.message, diff)
			}
		})
	}
}

// TestDeepMetadata checks that a too deeply nested value is null, not an error.
func TestDeepMetadata(t *testing.T) {
	value := structpb.NewStringValue("the bottom")
	for range wire.MaxDepth + 1 {
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	b := marshal(t, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{MetadataContext: &corev3.Metadata{
		FilterMetadata: map[string]*structpb.Struct{"n": {Fields: map[string]*structpb.Value{"k": value}}},
	}}})
	r, err := auth.Unmarshal(b)
	if err != nil {
		t.Fatal(err)
	}
	at, depth := r.Metadata["n"]["k"], 0
	for at != nil {
		at = at.([]any)[0]
		depth++
	}
	if depth != wire.MaxDepth {
		t.Errorf("got %d levels, want %d and null below", depth, wire.MaxDepth)
	}
}

// fromProto returns the request that the generated code has read. unique reports whether each header has one value.
func fromProto(m *authv3.CheckRequest) (want *authz.Request, unique bool) {
	a := m.GetAttributes()
	h := a.GetRequest().GetHttp()
	address := a.GetSource().GetAddress()
	want = &authz.Request{
		HTTP: h != nil, Method: h.GetMethod(), Host: h.GetHost(), Path: h.GetPath(),
		Source:    address.GetSocketAddress().GetAddress() + address.GetPipe().GetPath(),
		Principal: a.GetSource().GetPrincipal(), Extensions: a.GetContextExtensions(),
	}
	unique = true
	add := func(name, value string) {
		name = strings.ToLower(name)
		unique = unique && len(want.Headers.Values(name)) == 0
		want.Headers = append(want.Headers, reply.Header{Name: name, Value: value})
	}
	for name, value := range h.GetHeaders() {
		add(name, value)
	}
	for _, v := range h.GetHeaderMap().GetHeaders() {
		value := v.GetValue()
		if raw := v.GetRawValue(); len(raw) > 0 {
			value = string(raw)
		}
		add(v.GetKey(), value)
	}
	for namespace, fields := range a.GetMetadataContext().GetFilterMetadata() {
		if want.Metadata == nil {
			want.Metadata = map[string]map[string]any{}
		}
		want.Metadata[namespace] = fields.AsMap()
	}
	return want, unique
}

// FuzzUnmarshal compares the result of unmarshal with that of the generated code.
func FuzzUnmarshal(f *testing.F) {
	for _, text := range []string{
		fullRequest, "",
		`attributes { request { http { header_map { headers { key: "a" raw_value: "\xff" } } } } }`,
		`attributes { source { address { pipe { path: "p" } } } }`,
	} {
		b := marshal(f, parse(f, text))
		f.Add(b)
		f.Add(b[:len(b)/2])
		f.Add(append(b, b...)) // messages in a row are merged
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := auth.Unmarshal(b)
		m := new(authv3.CheckRequest)
		if proto.Unmarshal(b, m) != nil {
			return // the generated code also refuses text that is not UTF-8
		}
		if err != nil {
			t.Fatalf("%v for %v", err, m)
		}
		want, unique := fromProto(m)
		if names(got) > names(want) {
			t.Errorf("%v\nmore headers than there are: %v", m, got.Headers)
		}
		for _, h := range want.Headers {
			if !slices.Contains(got.Headers, h) {
				t.Errorf("%v\nno %q in %v", m, h, got.Headers)
			}
		}
		if !unique || len(got.Headers) != len(want.Headers) {
			// The generated code keeps the last map entry of a key; unmarshal keeps all.
			got.Headers, want.Headers = nil, nil
		}
		if deep(want.Metadata) {
			got.Metadata, want.Metadata = nil, nil
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateNaNs(), sorted); diff != "" {
			t.Errorf("%v\n(-generated +by hand)\n%s", m, diff)
		}
	})
}

// names returns the number of different names of headers.
func names(r *authz.Request) int {
	found := map[string]bool{}
	for _, h := range r.Headers {
		found[h.Name] = true
	}
	return len(found)
}

// deep reports whether metadata is nested deeper than unmarshal reads.
func deep(metadata map[string]map[string]any) bool {
	for _, fields := range metadata {
		if depth(fields) > wire.MaxDepth {
			return true
		}
	}
	return false
}

func depth(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, inner := range v {
			n = max(n, depth(inner))
		}
		return n + 1
	case []any:
		for _, inner := range v {
			n = max(n, depth(inner))
		}
		return n + 1
	}
	return 0
}
