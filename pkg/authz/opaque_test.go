package authz_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// TestOpaqueTokens: the issuer is not asked for an address over a limit of `refused`, nor on an open path. From such an
// address, a valid token passes if its answer is cached, else it gets 429.
func TestOpaqueTokens(t *testing.T) {
	var asked atomic.Int64
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		token := r.PostFormValue("token")
		_, _ = fmt.Fprintf(w, `{"active":%t,"sub":%q}`, strings.HasPrefix(token, "valid"), token)
	}))
	t.Cleanup(issuer.Close)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	introspector := jwt.NewIntrospector(jwt.Config{Now: func() time.Time { return now }})
	t.Cleanup(introspector.Close)
	rules := fmt.Sprintf(`
domain: shop
descriptors:
  - {key: remote_address, rate_limit: {name: guesses, unit: hour, requests_per_unit: 2}}
  - {key: owner, rate_limit: {unit: hour, requests_per_unit: 100}}
authz:
  credentials: [{opaque_token: {introspection_url: %q, client_id: shop, client_secret_file: %q}}]
  access:
    - {path: {exact: /open}, require: open}
    - {path: {prefix: /by}, require: denied, enforce: {percent: 100, by: owner}}
    - {path: {exact: /by/open}, require: open}
  limits: [{actions: [{credential: {field: owner}}]}]
  refused: [{actions: [{remote_address: }]}, {actions: [{path: }]}]
`, issuer.URL, secret)
	files := []file.File{{Name: "a.yaml", Content: []byte(rules)}}
	a := newAuthorizer(t, files, "", map[string]credential.Checker{jwt.OpaqueName: introspector})
	for n, c := range []struct {
		ask, want string
		asked     int64
	}{
		{"GET / authorization:Bearer~valid1", "200 allowed valid1", 1},
		{"GET / authorization:Bearer~wrong1", "401 invalid", 2},
		{"GET / authorization:Bearer~wrong2", "401 invalid", 3},
		{"GET / authorization:Bearer~wrong3", "429 refused_too_often", 3},
		{"GET / authorization:Bearer~wrong1", "429 refused_too_often", 3},
		{"GET / authorization:Bearer~valid2", "429 refused_too_often", 3},
		{"GET / authorization:Bearer~valid1", "200 allowed valid1", 3},
		{"GET /open authorization:Bearer~valid2", "200 open ", 3},
		{"GET / source=192.0.2.2 authorization:Bearer~valid2", "200 allowed valid2", 4},
		{"GET / authorization:Bearer~valid2", "200 allowed valid2", 4},
		{"GET /open authorization:Bearer~valid2", "200 allowed valid2", 4},
		{"GET / source=192.0.2.2 authorization:Bearer~wrong3", "401 invalid", 5},
		{"GET /by/all authorization:Bearer~valid3", "429 refused_too_often", 5},
		{"GET /by/open authorization:Bearer~valid3", "200 open ", 5},
		{"GET /by/open authorization:Bearer~valid2", "403 denied", 5},
	} {
		d := a.decide(t.Context(), parseRequest(t, c.ask))
		got := fmt.Sprint(d.Status, " ", d.Reason)
		if d.Verdict == authz.Allowed {
			got = fmt.Sprint("200 ", d.Reason, " ", d.Identity.Owner)
		}
		if got != c.want || asked.Load() != c.asked {
			t.Errorf("%d, %s: got %s, and the issuer was asked %d times; want %s, %d",
				n, c.ask, got, asked.Load(), c.want, c.asked)
		}
		headers := fmt.Sprint(d.ToClient)
		if d.Reason == reply.ReasonRefusedTooOften &&
			(!strings.Contains(headers, "guesses") || strings.Contains(headers, "www-authenticate")) {
			t.Errorf("%d, %s: the client gets %s", n, c.ask, headers)
		}
	}
	got := map[string]uint64{}
	a.EachFailure(func(reason reply.Reason, answer authz.FailureAnswer, n uint64) {
		if n > 0 {
			got[string(reason)+" "+string(answer)] = n
		}
	})
	want := map[string]uint64{"invalid refused": 3, "invalid limited": 4, "invalid passed": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("failures (-want +got)\n%s", diff)
	}
	var p authz.Pending
	if a.BeginNow(parseRequest(t, "GET / authorization:Bearer~valid3"), &p) || asked.Load() != 5 {
		t.Error("a request that has to ask the issuer is decided at once")
	}
}
