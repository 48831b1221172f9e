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
			got.Metadata = nil // see TestMetadata
			if diff := cmp.Diff(&c.want, got, cmpopts.EquateEmpty(), sorted); diff != "" {
				t.Errorf("%s\n(-want +got)\n%s", c.message, diff)
			}
		})
	}
}

// TestMetadata reads single values of metadata.
func TestMetadata(t *testing.T) {
	r, err := auth.Unmarshal(marshal(t, parse(t, fullRequest)))
	if err != nil || !r.Metadata.Fits() {
		t.Fatalf("%v, or the metadata does not fit", err)
	}
	for path, want := range map[string]any{
		"sub": "ann", "exp": 1.5, "admin": true, "address/city": "Riga",
		"nothing": nil, "unset": nil, "roles": nil, "address": nil, "none": nil,
		"sub/x": nil, "roles/a": nil, "nothing/x": nil, "address/city/x": nil,
	} {
		path := append([]string{"envoy.filters.http.jwt_authn"}, strings.Split(path, "/")...)
		if got := r.Metadata.At(path); got != want {
			t.Errorf("%q: got %v, want %v", path, got, want)
		}
	}
	if got := r.Metadata.At([]string{"envoy.filters.http.rbac", "sub"}); got != nil {
		t.Errorf("another namespace: got %v", got)
	}
	r, err = auth.Unmarshal(marshal(t, parse(t, `attributes { request { http { } } }`)))
	if err != nil || r.Metadata != nil {
		t.Errorf("a request without metadata has %v (%v)", r.Metadata, err)
	}
}

// metadataOf returns a message with metadata.
func metadataOf(t testing.TB, filters map[string]*structpb.Struct) []byte {
	t.Helper()
	return marshal(t, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request:         &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Host: "a", Path: "/"}},
		MetadataContext: &corev3.Metadata{FilterMetadata: filters},
	}})
}

// TestDeepMetadata checks that the depth of metadata takes no stack, and is not an error.
func TestDeepMetadata(t *testing.T) {
	value := structpb.NewStringValue("the bottom")
	for range 5000 {
		value = structpb.NewListValue(&structpb.ListValue{Values: []*structpb.Value{value}})
	}
	r, err := auth.Unmarshal(metadataOf(t, map[string]*structpb.Struct{"n": {Fields: map[string]*structpb.Value{
		"deep": value, "flat": structpb.NewStringValue("x"),
	}}}))
	if err != nil {
		t.Fatal(err)
	}
	deep, flat := r.Metadata.At([]string{"n", "deep"}), r.Metadata.At([]string{"n", "flat"})
	if deep != nil || flat != "x" {
		t.Errorf("got %v and %v, want nil and x", deep, flat)
	}
	if !r.Metadata.Fits() {
		t.Error("it does not fit")
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
	for _, repeated := range repeatedMetadata() {
		f.Add(repeated)
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
		if got.TooLarge {
			return
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
		if short := len(b) < wire.MostValues; short && got.Metadata != nil && !got.Metadata.Fits() {
			t.Errorf("%v\nthe metadata does not fit", m)
		}
		compareMetadata(t, got.Metadata, m.GetAttributes().GetMetadataContext().GetFilterMetadata())
		got.Metadata = nil
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

// repeatedMetadata returns messages in which fields of metadata come twice. The generated code merges some of them.
func repeatedMetadata() (messages [][]byte) {
	text := func(s string) string { return wrap(3, s) } // Values
	object := func(fields ...string) string { return wrap(5, strings.Join(fields, "")) }
	field := func(name string, values ...string) string {
		entry := wrap(1, name)
		for _, value := range values {
			entry += wrap(2, value)
		}
		return wrap(1, entry)
	}
	filter := func(fields ...string) string { // each is a Struct
		entry := wrap(1, "n")
		for _, one := range fields {
			entry += wrap(2, one)
		}
		return wrap(1, entry)
	}
	x, y := field("x", text("1")), field("y", text("2"))
	for _, metadata := range []string{
		filter(x) + filter(y), filter(x, y), filter(x, field("x", text("2"))), filter(field("x"), x, field("x")),
		filter(field("x", text("1"), text("2"))), filter(field("x", text("1")+text("2"))),
		filter(field("x", text("1"), object(y))), filter(field("x", object(y), text("1"))),
		filter(field("x", object(x), object(y))), filter(field("x", object(x)+object(y))),
		filter(field("x", object(x), wrap(6, ""), object(y))), filter(field("x", object(x)), field("x", object(y))),
		filter(field("x", object(x), "", object(field("x")))), filter(field("x", object(field("x", object(x), object(y))))),
		filter(wrap(1, wrap(2, text("1"))+wrap(1, "x"))), wrap(1, wrap(2, x)+wrap(1, "n")) + wrap(1, wrap(2, x)),
		filter(field("x", text("1"), "\x08\x00")), filter(field("x", "\x08\x00", object(x))),
	} {
		attributes := wrap(11, metadata)
		messages = append(messages, []byte(wrap(1, attributes)), []byte(wrap(1, attributes)+wrap(1, attributes)),
			[]byte(wrap(1, attributes+wrap(11, filter(y)))))
	}
	return messages
}

// wrap returns a field of type Bytes.
func wrap(number uint64, content string) string {
	return string(wire.AppendText(nil, number<<3|wire.Bytes, content))
}

// compareMetadata compares each value, and the names beside it, with those that the generated code has read.
func compareMetadata(t *testing.T, got authz.RequestMetadata, want map[string]*structpb.Struct) {
	t.Helper()
	if got == nil {
		if len(want) > 0 {
			t.Errorf("no metadata, want %v", want)
		}
		return
	}
	var compare func(path []string, want any)
	compare = func(path []string, want any) {
		path = slices.Clip(path)
		fields, isMap := want.(map[string]any)
		for name, value := range fields {
			compare(append(path, name), value)
		}
		if _, known := fields["none"]; !known {
			if value := got.At(append(path, "none")); value != nil {
				t.Errorf("%q has %v below it, want %v", path, value, want)
			}
		}
		if _, isList := want.([]any); isMap || isList {
			want = nil
		}
		if len(path) == 1 {
			return
		}
		if diff := cmp.Diff(want, got.At(path), cmpopts.EquateNaNs()); diff != "" {
			t.Errorf("%q (-generated +by hand)\n%s", path, diff)
		}
	}
	for namespace, fields := range want {
		compare([]string{namespace}, fields.AsMap())
	}
}
