package authz_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

// TestForward: with `forward: true`, the upstream gets the token that allows a request, in each place, and in its own
// spelling only. It gets no other credential, and no token that is not verified. An opaque token is verified once its
// issuer has answered about it.
func TestForward(t *testing.T) {
	key, forged := tokens.ES256(t, "k"), tokens.ES256(t, "k")
	claims := map[string]any{"iss": "https://idp.example", "aud": "shop", "sub": "ann", "exp": now.Unix() + 60}
	good, bad := key.Claims(t, claims), forged.Claims(t, claims)
	set := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(set, key.Set(t), 0o600); err != nil {
		t.Fatal(err)
	}
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, `{"active":%t,"sub":"ann"}`, r.PostFormValue("token") == good)
	}))
	t.Cleanup(issuer.Close)
	introspector := jwt.NewIntrospector(jwt.Config{Now: func() time.Time { return now }})
	t.Cleanup(introspector.Close)
	kinds := []string{ // the secret of the second can be any file
		fmt.Sprintf("jwt: {issuer: https://idp.example, audiences: [shop], algorithms: [ES256], jwks_file: %q", set),
		fmt.Sprintf("opaque_token: {introspection_url: %q, client_id: shop, client_secret_file: %q", issuer.URL, set),
	}
	const bearer, header, cookie, query = "", ", header: x-token", ", cookie: token", ", query: token"
	const apiKey, anyAuthorization = "{api_key: {header: x-api-key}}", "{api_key: {header: authorization}}"
	const scheme = "{api_key: {scheme: ApiKey}}"
	for _, c := range []struct {
		name, place, before, after string // of the token, and the credentials around it
		request                    string // GOOD and BAD stand for tokens
		kept                       bool
		removed                    []string // headers, ?parameters, and the cookies that are left after `cookie=`
	}{
		{"the scheme Bearer", bearer, "", "", "GET / authorization:Bearer~GOOD", true, nil},
		{"a header", header, "", "", "GET / x-token:GOOD", true, nil},
		{"a parameter", query, "", "", "GET /?token=GOOD", true, nil},
		{"a cookie", cookie, "", "", "GET / cookie:token=GOOD;a=b", true, nil},
		{"another spelling", header, "", "", "GET / x-token:GOOD x_token:BAD", true, []string{"x_token"}},
		{"other credentials", bearer, "", apiKey, "GET / authorization:Bearer~GOOD x-api-key:key-of-ann", true,
			[]string{"x-api-key"}},
		{"another credential in its header", bearer, "", anyAuthorization, "GET / authorization:Bearer~GOOD", true, nil},
		{"another scheme", bearer, "", scheme, "GET / authorization:Bearer~GOOD", true, nil},
		{"another scheme decides", bearer, "", scheme, "GET / authorization:ApiKey~key-of-ann", false,
			[]string{"authorization"}},
		{"another cookie", cookie, "", "{api_key: {cookie: key}}", "GET / cookie:token=GOOD;~key=key-of-ann;~a=b", true,
			[]string{"cookie=token=GOOD;~a=b"}},
		{"another credential decides", bearer, apiKey, "", "GET / authorization:Bearer~BAD x-api-key:key-of-ann", false,
			[]string{"authorization", "x-api-key"}},
		{"another credential decides, in a header", header, apiKey, "", "GET / x-token:BAD x-api-key:key-of-ann", false,
			[]string{"x-api-key", "x-token"}},
		{"an open path", bearer, "", "", "GET /open authorization:Bearer~GOOD", true, nil},
		{"forged for an open path", bearer, "", "", "GET /open authorization:Bearer~BAD", false, []string{"authorization"}},
		{"forged for an open path, in a header", header, "", "", "GET /open x-token:BAD", false, []string{"x-token"}},
		{"forged for an open path, in a parameter", query, "", "", "GET /open?token=BAD", false, []string{"?token"}},
		{"forged for an open path, in a cookie", cookie, "", "", "GET /open cookie:token=BAD", false, []string{"cookie"}},
		{"twice", header, "", "", "GET /open x-token:GOOD x-token:BAD", false, []string{"x-token"}},
		{"twice, in cookies", cookie, "", "", "GET /open cookie:token=GOOD;~token~=BAD", false, []string{"cookie"}},
		{"twice, in one line", bearer, "", "", "GET /open authorization:Bearer~GOOD,~Bearer~BAD", false,
			[]string{"authorization"}},
	} {
		for _, kind := range kinds {
			for _, forward := range []bool{true, false} {
				credentials := []string{c.before, fmt.Sprintf("{%s%s, forward: %t}}", kind, c.place, forward), c.after}
				credentials = slices.DeleteFunc(credentials, func(text string) bool { return text == "" })
				request := strings.NewReplacer("GOOD", good, "BAD", bad).Replace(c.request)
				d := decideForward(t, introspector, credentials, request)
				got := describeRemoval(d, strings.NewReplacer(good, "GOOD", bad, "BAD", " ", "~"))
				if d.Verdict != authz.Allowed || forward && !slices.Equal(got, c.removed) {
					t.Errorf("%s: %v, removed %q; want it allowed, removed %q, by %s", c.name, d.Verdict, got, c.removed, kind)
				}
				if !forward && c.kept && slices.Equal(got, c.removed) {
					t.Errorf("%s, without forward: removed %q, want the token among them, by %s", c.name, got, kind)
				}
			}
		}
	}
}

func decideForward(t *testing.T, i *jwt.Introspector, credentials []string, request string) authz.Decision {
	t.Helper()
	rules, problems := file.Parse([]file.File{{Name: "a.yaml", Content: []byte("domain: shop\nauthz:\n  credentials: [" +
		strings.Join(credentials, ", ") + "]\n  access: [{path: {exact: /open}, require: open}]\n")}}, file.Config{})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	policies := authz.NewPolicies(rules.Policies, ratelimit.NewRules(nil, ratelimit.RulesOptions{}), reply.Headers{})
	v := jwt.New(jwt.Config{Now: func() time.Time { return now }})
	defer v.Close()
	v.SetIssuers(authz.CredentialsOf[*jwt.Credential](policies))
	v.Refresh()
	return decider{authz.New(authz.Config{
		Policies: func() *authz.Policies { return policies },
		Checkers: map[string]credential.Checker{jwt.Name: v, jwt.OpaqueName: i, "api_key": testKeys(t)},
	}), nil}.decide(t.Context(), parseRequest(t, request))
}

// describeRemoval returns what is removed from a request, beside what is removed from every request.
func describeRemoval(d authz.Decision, shorten *strings.Replacer) (removed []string) {
	for _, name := range d.Remove {
		if !slices.Contains(always, name) && !slices.Contains(unlessKept, name) && !strings.HasPrefix(name, "x-auth-") {
			removed = append(removed, name)
		}
	}
	for _, name := range d.RemoveQuery {
		removed = append(removed, "?"+name)
	}
	for _, h := range d.ToUpstream {
		if h.Name == "cookie" {
			removed = append(removed, "cookie="+shorten.Replace(h.Value))
		}
	}
	slices.Sort(removed)
	return removed
}
