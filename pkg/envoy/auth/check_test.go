package auth_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/wire"
	"github.com/extauthz/extauthz/test/testenv"
)

// checkedKey is the only valid key of the fuzz test, and checkedPrincipal the only principal.
const (
	checkedKey       = "the-only-key"
	checkedPrincipal = "spiffe://example.org/sa/web"
)

// checkedPolicy has every kind of rule and of action.
const checkedPolicy = `
domain: shop
descriptors:
  - { key: "*", rate_limit: { unit: second, requests_per_unit: 1000000 } }
  - { key: tenant, value: busy, rate_limit: { unit: hour, requests_per_unit: 0 } }
authz:
  credentials:
    - api_key: { header: x-api-key }
    - api_key: { scheme: ApiKey }
    - api_key: { query: api_key }
    - api_key: { cookie: api_key }
    - mtls: { principals: ["` + checkedPrincipal + `"] }
  preflight: allow
  access:
    - { path: { prefix: /admin }, require: denied }
    - { hosts: [admin.example, "2001:db8::1"], require: denied }
    - { path: { prefix: /public }, require: open }
    - { methods: [DELETE], path: { template: "/users/{id}" }, scopes: [delete] }
  limits:
    - actions: [{ remote_address: { trusted_hops: 1 } }]
    - actions: [{ host: }]
    - actions: [{ path: }, { method: }]
    - actions: [{ credential: { field: owner } }]
    - actions: [{ request_headers: { header: x-tenant, key: tenant } }]
      hits_addend: { header: x-cost }
    - actions: [{ query_parameter: { parameter: q, key: q } }]
    - actions: [{ metadata: { key: m, path: [n, a, b], default: none } }]
    - actions: [{ header_value_match: { header: user-agent, pattern: "*bot*", value: bot } }]
      hits_addend: { extension: cost }
  refused:
    - actions: [{ remote_address: { key: refused } }]
`

// newChecked returns a flow with a policy.
func newChecked(t testing.TB, policy string) *flow.Flow {
	t.Helper()
	text := file.File{Name: "shop.yaml", Content: []byte(policy)}
	rules, problems := file.Parse([]file.File{text}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	var now atomic.Int64 // each reading is a day later, so that every decision finds all limits unused
	store, err := memstore.New(memstore.Config{
		Clock: func() int64 { return now.Add((24 * time.Hour).Microseconds()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	limiter := ratelimit.New(ratelimit.Config{Store: store, Fallback: store})
	secret, err := apikey.NewSecret("a server secret for tests only", "")
	if err != nil {
		t.Fatal(err)
	}
	keys := new(apikey.Source)
	keys.Replace([]apikey.Record{{ID: "ann", Owner: "ann", Plan: "gold", Weak: true, Hash: secret.Hash(checkedKey)}})
	headers := reply.Headers{Sets: []reply.Set{reply.Draft}}
	policies := authz.NewPolicies(rules.Policies, ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}), headers)
	authorizer := authz.New(authz.Config{
		Policies: func() *authz.Policies { return policies },
		Checkers: map[string]credential.Checker{
			apikey.Name: apikey.New(apikey.Config{Secret: secret, Sources: []*apikey.Source{keys}}),
		},
		Headers:     headers,
		ProblemBody: true,
	})
	return newFlow(flow.Config{Authorizer: authorizer, Limiter: limiter})
}

// checkedSeed is a first request of the fuzzer, and the code of its answer.
type checkedSeed struct {
	want    codes.Code
	request string // as prototext
}

// checkedSeeds returns requests of each kind that is allowed, and of each kind that is refused.
func checkedSeeds() []checkedSeed {
	request := func(method, host, path string, headers ...string) string { // name, value, name, value
		raw := ""
		for i := 0; i < len(headers); i += 2 {
			raw += fmt.Sprintf("headers { key: %q raw_value: \"%s\" } ", headers[i], headers[i+1])
		}
		return fmt.Sprintf(`attributes {
			source { address { socket_address { address: "192.0.2.1" } } }
			request { http { method: %q host: %q path: %q header_map { %s } } }
		}`, method, host, path, raw)
	}
	get := func(path string, headers ...string) string { return request("GET", "shop.example", path, headers...) }
	const allowed, refused, key = codes.OK, codes.PermissionDenied, "x-api-key"
	return []checkedSeed{
		{allowed, get("/", key, checkedKey)},
		{allowed, get("/?api_key=" + checkedKey + "&q=1")},
		{allowed, get("/", "authorization", "ApiKey "+checkedKey)},
		{allowed, get("/", "cookie", "a=b; api_key="+checkedKey)},
		{allowed, get("/public/100%25")},
		{allowed, request("GET", "[2001:db8::2]:80", "/public")},
		{allowed, request("OPTIONS", "a", "/", "origin", "https://a", "access-control-request-method", "PUT")},
		{allowed, `attributes { source { principal: "` + checkedPrincipal + `" address { pipe { path: "/p" } } } }`},
		{refused, `attributes { source { principal: "spiffe://example.org/sa/other" } }`},
		{refused, get("/")},
		{refused, get("/", key, checkedKey, key, checkedKey)},
		{refused, get("/admin", key, checkedKey)},
		{refused, get("/%61dmin", key, checkedKey)},
		{refused, get("/public/%252e%252e/admin")},
		{refused, get("/public/!!", ":path", `/public/\xc0\xae`)},
		{refused, request("GET", "admin.example", "/", key, checkedKey)},
		{refused, request("GET", "admin.example:80:80", "/", key, checkedKey)},
		{refused, request("DELETE", "shop.example", "/users/7", key, checkedKey)},
		{refused, get("/", key, checkedKey, "x-tenant", "busy")},
		{refused, `attributes {
			context_extensions { key: "domain" value: "none" } request { http { host: "a" path: "/public" } }
		}`},
		{refused, `attributes { request { http { } } }`},
		{refused, ``},
	}
}

// FuzzCheck checks that the answer to any CheckRequest is complete, and that a request is allowed only for a reason in
// the policy.
func FuzzCheck(f *testing.F) {
	server := newChecked(f, checkedPolicy)
	together := connect(f, listen(f, server))
	for _, seed := range checkedSeeds() {
		b := marshal(f, parse(f, seed.request))
		res, err := check(f, server, b)
		if err != nil || codes.Code(res.GetStatus().GetCode()) != seed.want {
			f.Errorf("%s\ngot %v, %v; want %v", seed.request, res, err, seed.want)
		}
		f.Add(b)
		f.Add(slices.Concat(b, b)) // messages in a row are merged
		f.Add(b[:len(b)/2])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := auth.Unmarshal(b)
		if err != nil {
			return // a malformed message is a gRPC error
		}
		res, err := check(t, server, b)
		if err != nil {
			t.Fatalf("%+v: %v", r, err)
		}
		checkAnswer(t, r, res)
		checkBatch(t, together, b, res)
	})
}

// openPolicy lets every request pass, and looks at metadata of the namespace n.
const openPolicy = `
domain: shop
authz:
  credentials: [{ api_key: { header: x-api-key } }]
  access: [{ path: { prefix: / }, require: open }]
  limits: [{ actions: [{ metadata: { key: m, path: [n, a] } }] }]
`

// wantTooLarge checks whether a message is refused because it is too large. If not, it must be allowed.
func wantTooLarge(t *testing.T, server *flow.Flow, name string, message []byte, want bool) {
	t.Helper()
	res, err := check(t, server, message)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	reason := res.GetDynamicMetadata().GetFields()["reason"].GetStringValue()
	status := res.GetDeniedResponse().GetStatus().GetCode()
	if want && (reason != "too_large" || status != 431) || !want && res.GetOkResponse() == nil {
		t.Errorf("%s: status %d, reason %q; too large: %t", name, status, reason, want)
	}
}

// TestMostHeaders sends as many headers and extensions as are read, and one more.
func TestMostHeaders(t *testing.T) {
	server := newChecked(t, openPolicy)
	request := func(headers, raw, extensions int) []byte {
		repeat := func(field string, n int) (text string) {
			for i := range n {
				text += fmt.Sprintf("%s { key: '%x' } ", field, i)
			}
			return text
		}
		return marshal(t, parse(t, fmt.Sprintf(`attributes { request { http { host: "a" path: "/"
			%s header_map { %s } } } %s }`, repeat("headers", headers), repeat("headers", raw),
			repeat("context_extensions", extensions))))
	}
	wantTooLarge(t, server, "most", request(authz.MostHeaders, 0, authz.MostExtensions), false)
	wantTooLarge(t, server, "headers", request(authz.MostHeaders+1, 0, 0), true)
	wantTooLarge(t, server, "most raw headers", request(0, authz.MostHeaders, 0), false)
	wantTooLarge(t, server, "raw headers", request(0, authz.MostHeaders+1, 0), true)
	wantTooLarge(t, server, "extensions", request(0, 0, authz.MostExtensions+1), true)
	for more, want := range []int{http.StatusOK, http.StatusRequestHeaderFieldsTooLarge} {
		r := httptest.NewRequest(http.MethodGet, "/check/", http.NoBody)
		for i := range authz.MostHeaders - 3 + more { // without :method, :authority and :path
			r.Header.Set(fmt.Sprintf("x-%x", i), "")
		}
		recorder := httptest.NewRecorder()
		server.Checks(http.NotFoundHandler()).ServeHTTP(recorder, r)
		if recorder.Code != want {
			t.Errorf("over HTTP, %d more: got %d, want %d", more, recorder.Code, want)
		}
	}
}

// TestMostMetadata sends as much metadata as a policy may read, and a value more. A policy that uses none reads none.
func TestMostMetadata(t *testing.T) {
	reads := newChecked(t, openPolicy)
	skips := newChecked(t, strings.ReplaceAll(openPolicy, "metadata: { key: m, path: [n, a] }", "method: "))
	list := func(n int) *structpb.Value {
		return structpb.NewListValue(&structpb.ListValue{Values: slices.Repeat([]*structpb.Value{{}}, n)})
	}
	fields := func(n int) *structpb.Struct {
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for i := range n {
			s.Fields[strconv.Itoa(i)] = &structpb.Value{}
		}
		return s
	}
	for name, metadata := range map[string]func(n int) map[string]*structpb.Struct{
		"fields": func(n int) map[string]*structpb.Struct { return map[string]*structpb.Struct{"n": fields(n)} },
		"fields of another namespace": func(n int) map[string]*structpb.Struct {
			return map[string]*structpb.Struct{"n": fields(n / 2), "o": fields(n - n/2)}
		},
		"a list": func(n int) map[string]*structpb.Struct {
			return map[string]*structpb.Struct{"n": {Fields: map[string]*structpb.Value{"a": list(n - 1)}}}
		},
		"a list in a map": func(n int) map[string]*structpb.Struct {
			inner := &structpb.Struct{Fields: map[string]*structpb.Value{"b": list(n - 2)}}
			return map[string]*structpb.Struct{"n": {Fields: map[string]*structpb.Value{"a": structpb.NewStructValue(inner)}}}
		},
	} {
		wantTooLarge(t, reads, name, metadataOf(t, metadata(wire.MostValues)), false)
		wantTooLarge(t, reads, name+", one more", metadataOf(t, metadata(wire.MostValues+1)), true)
		wantTooLarge(t, skips, name+", unused", metadataOf(t, metadata(10*wire.MostValues)), false)
	}
	malformed := wrap(1, wrap(4, wrap(2, wrap(4, "/")+wrap(5, "a")))+wrap(11, wrap(1, wrap(1, "n")+wrap(2, "\xff"))))
	wantTooLarge(t, reads, "unreadable", []byte(malformed), true)
	wantTooLarge(t, skips, "unreadable, unused", []byte(malformed), false)
}

// check returns the answer to a message.
func check(t testing.TB, server *flow.Flow, message []byte) (*authv3.CheckResponse, error) {
	t.Helper()
	answer, err := server.Answer(t.Context(), flow.Check, string(message), http.Header{})
	if err != nil {
		return nil, err
	}
	res := new(authv3.CheckResponse)
	return res, proto.Unmarshal(answer, res)
}

// checkBatch checks that calls that arrive together get the answer that the request got alone. One of them is
// malformed.
func checkBatch(t *testing.T, together *peer, message []byte, want *authv3.CheckResponse) {
	t.Helper()
	if len(message) > mostTogether {
		return
	}
	answers := together.call(t, message, []byte("malformed"), message)
	for _, i := range []int{0, 2} {
		got := new(authv3.CheckResponse)
		if err := proto.Unmarshal(answers[i].message, got); err != nil || answers[i].status != "0" {
			t.Fatalf("call %d: %v, status %s", i, err, answers[i].status)
		}
		for _, res := range []*authv3.CheckResponse{want, got} { // they differ in what is left of the limits
			delete(res.GetDynamicMetadata().GetFields(), "remaining")
			if ok := res.GetOkResponse(); ok != nil {
				ok.ResponseHeadersToAdd = nil
			}
		}
		if diff := gocmp.Diff(want, got, protocmp.Transform()); diff != "" {
			t.Errorf("call %d (-alone +batch)\n%s", i, diff)
		}
	}
	if answers[1].status == "0" || answers[1].message != nil {
		t.Errorf("a malformed call got status %s, %q", answers[1].status, answers[1].message)
	}
}

func checkAnswer(t *testing.T, r *authz.Request, res *authv3.CheckResponse) {
	t.Helper()
	metadata := res.GetDynamicMetadata().GetFields()
	reason := reply.Reason(metadata["reason"].GetStringValue())
	if res.GetStatus() == nil || reason == "" {
		t.Fatalf("%+v: no status or no reason in %v", r, res)
	}
	if codes.Code(res.GetStatus().GetCode()) != codes.OK {
		status := max(res.GetDeniedResponse().GetStatus().GetCode(), res.GetErrorResponse().GetStatus().GetCode())
		if res.GetOkResponse() != nil || status < 400 || status > 599 {
			t.Errorf("%+v: refused with %v", r, res)
		}
		return
	}
	if res.GetOkResponse() == nil {
		t.Errorf("%+v: allowed without ok_response: %v", r, res)
	}
	domain, named := r.Extensions[authz.DomainExtension]
	if named && domain != "" && domain != "shop" {
		t.Errorf("%+v: allowed by the policy of another domain", r)
	}
	switch owner := metadata["owner"].GetStringValue(); {
	case reason == reply.ReasonAllowed && owner == "ann" && carries(r, checkedKey):
	case reason == reply.ReasonAllowed && owner == checkedPrincipal && r.Principal == checkedPrincipal:
	case reason == reply.ReasonOpen && r.HTTP && owner == "" && (below(r, "/public") || r.Method == "OPTIONS"):
	default:
		t.Errorf("%+v: allowed for %q as %q, without a reason", r, reason, owner)
	}
	if !r.HTTP {
		return
	}
	if below(r, "/admin") {
		t.Errorf("%+v: allowed, although an upstream reads the path as one below /admin", r)
	}
	for does, read := range testenv.HostReaders() {
		if name := read(r.Host); name == "admin.example" || name == "2001:db8::1" || name == "" {
			t.Errorf("%+v: allowed, although an upstream that %s reads the host as %q", r, does, name)
		}
	}
}

// below reports whether an upstream reads the path as one in a directory.
func below(r *authz.Request, directory string) bool {
	for _, received := range append(r.Headers.Values(":path"), r.Path) {
		path, _, _ := strings.Cut(received, "?")
		for _, read := range testenv.PathReaders() {
			if place := read(path); place == directory || strings.HasPrefix(place, directory+"/") {
				return true
			}
		}
	}
	return false
}

// carries reports whether a request has a key in one of the places for keys.
func carries(r *authz.Request, key string) bool {
	places := slices.Concat(r.Headers.Values("x-api-key"), r.Headers.Values("authorization"), r.Headers.Values("cookie"))
	for _, received := range append(r.Headers.Values(":path"), r.Path) {
		_, query, _ := strings.Cut(received, "?")
		for pair := range strings.SplitSeq(query, "&") {
			if decoded, err := url.QueryUnescape(pair); err == nil {
				places = append(places, decoded)
			}
		}
	}
	return slices.ContainsFunc(places, func(s string) bool { return strings.Contains(s, key) })
}
