package jwt_test

import (
	"testing"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/memstore"
	"github.com/extauthz/extauthz/pkg/reply"
)

// TestChallenge: a refused token gets 401 and the error of RFC 6750. Only a token with a signature of the issuer learns
// that it has expired or is not valid yet.
func TestChallenge(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	verifier := jwt.New(jwt.Config{Now: c.now})
	t.Cleanup(verifier.Close)
	policies := authz.NewPolicies(map[string]*authz.Policy{"shop": {Credentials: []authz.Credential{{JWT: &jwt.Credential{
		Issuer: new("https://issuer.example"), Audiences: []string{audience}, Algorithms: []string{"ES256"},
		JWKSURL: new(i.URL),
	}}}}}, ratelimit.NewRules(nil, ratelimit.RulesOptions{}), reply.Headers{})
	verifier.SetIssuers(authz.CredentialsOf[*jwt.Credential](policies))
	store, err := memstore.New(memstore.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	a := authz.New(authz.Config{
		Policies: func() *authz.Policies { return policies },
		Checkers: map[string]credential.Checker{jwt.Name: verifier},
	})
	const bearer = `Bearer realm="shop"`
	const invalid = bearer + `, error="invalid_token"`
	for _, tc := range []struct{ name, token, want string }{
		{"valid", s.sign(t, nil), ""},
		{"none", "", bearer},
		{
			"expired", s.sign(t, claims{"exp": c.at(-time.Hour)}),
			invalid + `, error_description="The token has expired"`,
		},
		{
			"not valid yet", s.sign(t, claims{"nbf": c.at(time.Hour)}),
			invalid + `, error_description="The token is not valid yet"`,
		},
		{"for another service", s.sign(t, claims{"aud": "another"}), invalid},
		{"of another issuer, expired", es256("1").sign(t, claims{"exp": c.at(-time.Hour)}), invalid},
		{"no token", "x", invalid},
	} {
		r := &authz.Request{HTTP: true, Method: "GET", Host: "shop.example", Path: "/"}
		if tc.token != "" {
			r.Headers = authz.Headers{{Name: "authorization", Value: "Bearer " + tc.token}}
		}
		var p authz.Pending
		a.Begin(t.Context(), r, &p)
		a.Finish(&p, nil) // there are no limits
		d := &p.Decision
		got := ""
		for _, h := range d.ToClient {
			if h.Name == "www-authenticate" {
				got = h.Value
			}
		}
		allowed := d.Verdict == authz.Allowed
		if got != tc.want || allowed != (tc.want == "") || !allowed && d.Status != 401 {
			t.Errorf("%s: got %d %s, want %s", tc.name, d.Status, got, tc.want)
		}
	}
}
