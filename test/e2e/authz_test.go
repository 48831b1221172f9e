package e2e

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

// shop is the service with the policy of testdata/policy.yaml, an Envoy with the sample configuration, and an issuer of
// tokens.
type shop struct {
	*proxy
	service *service
	issuer  *issuer
	keys    *apiKeys
	rules   string // the path of the rule file
}

func startShop(t *testing.T, edits ...edit) *shop {
	t.Helper()
	s := &shop{issuer: newIssuer(t), keys: keysInFile(t)}
	root, file := rulesDirectory(t, policy(t, s.issuer))
	s.rules = file
	s.service = startService(t, append(s.keys.environment, "RUNTIME_ROOT="+root)...)
	s.proxy = startEnvoy(t, s.service.grpcPort, edits...)
	return s
}

// policy returns testdata/policy.yaml with the keys of an issuer.
func policy(t *testing.T, i *issuer) string {
	t.Helper()
	return instead("ISSUER_KEYS", i.file)(t, testenv.RepoFile(t, "test/e2e/testdata/policy.yaml"))
}

// get returns a GET request with these headers.
func get(path string, header ...[2]string) call {
	return call{method: http.MethodGet, path: path, header: header}
}

// TestAuthz checks the outcomes of ext_authz, as clients see them.
func TestAuthz(t *testing.T) {
	t.Parallel()
	s := startShop(t)
	t.Run("outcomes", func(t *testing.T) { testOutcomes(t, s) })
	t.Run("limits", func(t *testing.T) { testOwnersLimits(t, s) })
	t.Run("gRPC", func(t *testing.T) { testAuthzGRPC(t, s) })
	t.Run("both filters", func(t *testing.T) { testBothFilters(t, s) })
}

func testOutcomes(t *testing.T, s *shop) {
	ann := s.issuer.bearer(t, claims{"plan": "gold"})
	const (
		challenge    = `Bearer realm="sample", ApiKey realm="sample"`
		invalidToken = `Bearer realm="sample", error="invalid_token", ApiKey realm="sample"`
		expired      = `Bearer realm="sample", error="invalid_token", error_description="The token has expired", ` +
			`ApiKey realm="sample"`
	)
	for _, c := range []struct {
		name   string
		call   call
		status int
		header http.Header // of the answer; nil values: absent
		saw    http.Header // of the request at the application, if it gets there; nil values: absent
	}{
		{name: "a valid token", call: get("/", ann), status: 200,
			saw: http.Header{
				"X-Auth-Owner": {"ann"}, "X-Auth-Plan": {"gold"}, "X-Auth-Method": {"jwt"}, "X-Auth-Key-Id": {"first"},
				"Authorization": nil,
			}},
		{name: "a token without a plan", call: get("/", s.issuer.bearer(t, claims{"sub": "bob"})), status: 200,
			saw: http.Header{"X-Auth-Owner": {"bob"}, "X-Auth-Plan": nil}},
		{name: "no credential", call: get("/"), status: 401, header: http.Header{"Www-Authenticate": {challenge}}},
		{name: "a scheme that the policy does not have", call: get("/", [2]string{"authorization", "Basic YW5uOmFubg=="}),
			status: 401},
		{name: "an invalid token", call: get("/", [2]string{"authorization", "Bearer x"}), status: 401,
			header: http.Header{"Www-Authenticate": {invalidToken}}},
		{name: "an expired token", status: 401, header: http.Header{"Www-Authenticate": {expired}},
			call: get("/", s.issuer.bearer(t, claims{"exp": time.Now().Add(-2 * time.Minute).Unix()}))},
		{name: "a token that is not valid yet", status: 401,
			call: get("/", s.issuer.bearer(t, claims{"nbf": time.Now().Add(time.Hour).Unix()}))},
		{name: "a token for another audience", status: 401, call: get("/", s.issuer.bearer(t, claims{"aud": "another"}))},
		{name: "a token of another issuer", status: 401, call: get("/", newIssuer(t).bearer(t, nil))},
		{name: "a changed token", status: 401, call: get("/", [2]string{"authorization", swapSignature(t, s.issuer)})},
		{name: "an unsigned token", status: 401, call: get("/", [2]string{"authorization", "Bearer " + unsigned})},
		{name: "two tokens", call: get("/", ann, ann), status: 401},
		// Envoy and the application trim the values of headers. Without a check, each of these would reach the application
		// as root or gold.
		{name: "an owner that ends with a space", call: get("/", s.issuer.bearer(t, claims{"sub": "root "})), status: 401},
		{name: "an owner with an invisible character", call: get("/", s.issuer.bearer(t, claims{"sub": "ro\u00adot"})),
			status: 401},
		{name: "an owner that begins with a space", call: get("/", s.issuer.bearer(t, claims{"sub": " root"})), status: 401},
		{name: "an owner that ends with a tab", call: get("/", s.issuer.bearer(t, claims{"sub": "root\t"})), status: 401},
		{name: "an owner of spaces", call: get("/", s.issuer.bearer(t, claims{"sub": "  "})), status: 401},
		{name: "an owner that ends with a no-break space", call: get("/", s.issuer.bearer(t, claims{"sub": "root\u00a0"})),
			status: 401},
		{name: "an owner with a line break", call: get("/", s.issuer.bearer(t, claims{"sub": "root\nx"})), status: 401},
		{name: "an owner that is half a character", status: 401,
			call: get("/", s.issuer.bearer(t, claims{"sub": json.RawMessage(`"ann\ud800"`)}))},
		{name: "a plan that is half a character", status: 401,
			call: get("/", s.issuer.bearer(t, claims{"plan": json.RawMessage(`"\udfff"`)}))},
		{name: "a plan that ends with a space", call: get("/", s.issuer.bearer(t, claims{"plan": "gold "})), status: 401},
		{name: "an owner with a space inside", call: get("/", s.issuer.bearer(t, claims{"sub": "ann lee"})), status: 200,
			saw: http.Header{"X-Auth-Owner": {"ann lee"}}},
		{name: "an open path", call: get("/public/logo.png"), status: 200,
			saw: http.Header{"X-Auth-Owner": nil, "X-Auth-Method": {"anonymous"}}},
		{name: "an open path with a token", call: get("/public/logo.png", ann), status: 200,
			saw: http.Header{"X-Auth-Owner": {"ann"}}},
		{name: "a path beside the open one", call: get("/publicity"), status: 401},
		{name: "a denied path", call: get("/internal/metrics", ann), status: 403},
		{name: "a missing scope", call: call{method: http.MethodDelete, path: "/users/7", header: [][2]string{ann}},
			status: 403},
		{name: "the scope", status: 200, call: call{
			method: http.MethodDelete, path: "/users/7",
			header: [][2]string{s.issuer.bearer(t, claims{"scope": "users:read users:delete"})},
		}},
		{name: "a scope that has the wanted one after a no-break space", status: 403, call: call{
			method: http.MethodDelete, path: "/users/7",
			header: [][2]string{s.issuer.bearer(t, claims{"scope": "x\u00a0users:delete"})},
		}},
		// Envoy itself removes //, /../ and %2f (normalize_path and similar settings). The service refuses what remains.
		{name: "parameters in a path", call: get("/public;x=1/logo.png", ann), status: 400},
		{name: "dots with parameters", call: get("/public/..;/internal", ann), status: 403},
		{name: "a line break", call: get("/public/%0a", ann), status: 400},
		{name: "another spelling of the denied path", call: get("//public/../%69nternal/x", ann), status: 403},
		{name: "a preflight", status: 200, call: call{method: http.MethodOptions, path: "/", header: [][2]string{
			{"origin", "https://shop.example"}, {"access-control-request-method", "PUT"}}}},
		{name: "OPTIONS without the headers of a preflight", call: call{method: http.MethodOptions, path: "/"}, status: 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := s.do(t, c.call)
			if a.status != c.status {
				t.Fatalf("got %d %s; want %d; the application received %v", a.status, a.body, c.status, a.saw())
			}
			wantHeaders(t, "the client", a.header, c.header)
			if c.status != http.StatusOK {
				wantProblem(t, a, c.status)
				if seen := a.saw(); seen != nil {
					t.Errorf("the application received %v, want nothing", seen)
				}
				return
			}
			wantHeaders(t, "the application", a.saw(), c.saw)
		})
	}
}

// wantHeaders compares the headers in want. The value nil means that a header must be absent.
func wantHeaders(t *testing.T, who string, got, want http.Header) {
	t.Helper()
	for name, values := range want {
		if diff := cmp.Diff(values, got.Values(name)); diff != "" {
			t.Errorf("%s: %s (-want +got)\n%s", who, name, diff)
		}
	}
}

// unsigned is a token with `alg: none`, sub ann, aud shop, and exp in 2100.
const unsigned = "eyJhbGciOiJub25lIn0." +
	"eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwiYXVkIjoic2hvcCIsInN1YiI6ImFubiIsImV4cCI6NDEwMjQ0NDgwMH0."

// swapSignature returns a token with the signature of another token.
func swapSignature(t *testing.T, i *issuer) string {
	t.Helper()
	mine, others := i.bearer(t, claims{"sub": "eve"})[1], i.bearer(t, claims{"sub": "root"})[1]
	return others[:strings.LastIndex(others, ".")] + mine[strings.LastIndex(mine, "."):]
}

// testOwnersLimits uses up a limit of ext_authz.
func testOwnersLimits(t *testing.T, s *shop) {
	few := get("/few/things", s.issuer.bearer(t, claims{"sub": "carl"}))
	const policy = `"few";q=3;w=3600`
	begin := time.Now()
	for left := 2; left >= 0; left-- {
		a := s.do(t, few)
		if a.status != http.StatusOK || a.saw() == nil {
			t.Fatalf("with %d left: got %d %s, want 200", left, a.status, a.body)
		}
		wantHeaders(t, "the client", a.header, http.Header{"Ratelimit-Policy": {policy}, "Retry-After": nil})
	}
	a := s.do(t, few)
	if a.status != http.StatusTooManyRequests || a.saw() != nil {
		t.Fatalf("the fourth: got %d, the application received %v; want 429 and nothing", a.status, a.saw())
	}
	wantProblem(t, a, http.StatusTooManyRequests)
	wantHeaders(t, "the client", a.header, http.Header{"Ratelimit-Policy": {policy}})
	near := near(int(time.Since(begin) / time.Second)) // the bucket drains meanwhile
	for name, want := range map[string]string{"Ratelimit": `"few";r=0;t=1200`, "Retry-After": "1200"} {
		if got := a.header.Get(name); !near(got, want) {
			t.Errorf("the client: %s: got %q, want %q", name, got, want)
		}
	}
	if a := s.do(t, get("/few/things", s.issuer.bearer(t, claims{"sub": "dora"}))); a.status != http.StatusOK {
		t.Errorf("another owner: got %d, want 200", a.status)
	}
	if a := s.do(t, get("/", few.header...)); a.status != http.StatusOK || a.header.Get("Ratelimit") != "" {
		t.Errorf("a path without a limit: got %d, ratelimit: %q; want 200 and none", a.status, a.header.Get("Ratelimit"))
	}
}
