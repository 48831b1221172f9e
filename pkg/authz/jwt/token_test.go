package jwt_test

import (
	"encoding/base64"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

func TestCheckAlgorithms(t *testing.T) {
	for _, s := range []signer{
		{"1", jose.RS256, rsaKey()}, {"1", jose.RS384, rsaKey()}, {"1", jose.RS512, rsaKey()},
		{"1", jose.PS256, rsaKey()}, {"1", jose.PS384, rsaKey()}, {"1", jose.PS512, rsaKey()},
		{"1", jose.ES256, p256Key()}, {"1", jose.ES384, p384Key()}, {"1", jose.ES512, p521Key()},
		{"1", jose.EdDSA, ed25519Key()},
	} {
		t.Run(string(s.Algorithm), func(t *testing.T) {
			t.Parallel()
			i, c := newIssuer(t, s), &clock{}
			allowed, other := i.settings(), i.settings()
			allowed.Algorithms = []string{string(s.Algorithm)}
			other.Algorithms = []string{"RS256"}
			if s.Algorithm == jose.RS256 {
				other.Algorithms = []string{"PS256"}
			}
			v := open(t, jwt.Config{Now: c.now}, allowed, other)
			token := s.sign(t, nil)
			check(t, v, allowed, token, "owner ann")
			check(t, v, allowed, token, "owner ann")
			check(t, v, other, token, "invalid: algorithm")
		})
	}
}

// TestCheckClaims checks the claims of tokens with a right signature.
func TestCheckClaims(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	for _, tc := range []struct {
		name   string
		differ claims
		want   string
	}{
		{"nothing special", nil, "owner ann"},
		{"several audiences", claims{"aud": []string{"https://other.example", audience}}, "owner ann"},
		{"a time with a fraction", claims{"exp": float64(noon.Unix()) + 0.5}, "owner ann"},
		{"expired within the leeway", claims{"exp": c.at(-29 * time.Second)}, "owner ann"},
		{"expired at the leeway", claims{"exp": c.at(-30 * time.Second)}, "expired: expired"},
		{"expired long ago", claims{"exp": 0}, "expired: expired"},
		{"without exp", claims{"exp": nil}, "invalid: times"},
		{"exp as text", claims{"exp": "1999999999"}, "invalid: times"},
		{"exp before 1970", claims{"exp": -1}, "invalid: times"},
		{"exp out of all range", claims{"exp": 1e300}, "invalid: times"},
		{"nbf within the leeway", claims{"nbf": c.at(30 * time.Second)}, "owner ann"},
		{"nbf in the future", claims{"nbf": c.at(31 * time.Second)}, "not yet: not_yet"},
		{"nbf that is not a time", claims{"nbf": true}, "invalid: times"},
		{"iat in the future", claims{"iat": c.at(31 * time.Second)}, "not yet: not_yet"},
		{"without iat", claims{"iat": nil}, "owner ann"},
		{"wrong issuer", claims{"iss": "https://issuer.example/"}, "invalid: issuer"},
		{"without issuer", claims{"iss": nil}, "invalid: issuer"},
		{"issuer in a list", claims{"iss": []string{"https://issuer.example"}}, "invalid: issuer"},
		{"wrong audience", claims{"aud": "https://api.example.org.evil"}, "invalid: audience"},
		{"without audience", claims{"aud": nil}, "invalid: audience"},
		{"empty audience", claims{"aud": []string{}}, "invalid: audience"},
		{"audiences not all text", claims{"aud": []any{audience, 1}}, "invalid: audience"},
		{"without owner", claims{"sub": nil}, "invalid: subject"},
		{"empty owner", claims{"sub": ""}, "invalid: subject"},
		{"owner that is a number", claims{"sub": 7}, "invalid: subject"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, v, settings, s.sign(t, tc.differ), tc.want) })
	}
}

func TestCheckIdentity(t *testing.T) {
	s, c := es256("key-1"), &clock{}
	i := newIssuer(t, s)
	usual, own := i.settings(), i.settings()
	own.OwnerClaim, own.PlanClaim = credential.NewPath("https://example.org/tenant"), credential.NewPath("plan")
	own.ScopesClaim = credential.NewPath("scp")
	v := open(t, jwt.Config{Now: c.now}, usual, own)
	token := s.sign(t, claims{
		"scope": " read  write\tlog x\u00a0admin", "scp": []string{"admin", "read all"},
		"plan": "gold", "https://example.org/tenant": "acme",
		"account": int64(9007199254740993), "ratio": 0.5, "beta": true, "realm": map[string]any{"roles": []int{1}},
		"": "not a plan",
	})
	known := map[string]any{
		"iss": "https://issuer.example", "aud": audience, "sub": "ann", "exp": c.at(time.Hour), "iat": c.at(0),
		"scope": " read  write\tlog x\u00a0admin", "scp": []any{"admin", "read all"},
		"plan": "gold", "https://example.org/tenant": "acme",
		"account": int64(9007199254740993), "ratio": 0.5, "beta": true, "realm": map[string]any{"roles": []any{int64(1)}},
		"": "not a plan",
	}
	for _, tc := range []struct {
		name     string
		settings *jwt.Credential
		want     credential.Identity
	}{
		{"the default claims", usual, credential.Identity{
			Method: "jwt", Owner: "ann", KeyID: "key-1", Scopes: []string{"read", "write\tlog", "x\u00a0admin"}, Claims: known,
		}},
		{"configured claims", own, credential.Identity{
			Method: "jwt", Owner: "acme", Plan: "gold", KeyID: "key-1", Scopes: []string{"admin", "read all"}, Claims: known,
		}},
	} {
		for _, again := range []string{"verified", "cached"} {
			got, err := v.Identify(t.Context(), tc.settings, token)
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Errorf("%s, %s: error %v, (-want +got)\n%s", tc.name, again, err, diff)
			}
		}
	}
}

// TestClaimsBelowTheTopLevel: each claim of the settings can be nested, and the identity lists those that give nothing.
func TestClaimsBelowTheTopLevel(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	keycloak := claims{
		"realm_access":    map[string]any{"roles": []string{"admin", "offline_access"}, "plan": "gold"},
		"resource_access": map[string]any{"shop.api": map[string]any{"roles": []string{"write"}}},
		"user":            map[string]any{"name": "ann lee"}, "https://example.com/roles": []string{"auth0"},
		"accounts": []any{map[string]any{"id": "a-1"}}, "realm_access.shadow": "whole",
	}
	path := credential.NewPath
	for _, tc := range []struct {
		name                string
		owner, plan, scopes *credential.Path
		want                credential.Identity
		wrong               string
	}{
		{
			name: "Keycloak", owner: path("user.name"), plan: path("realm_access.plan"), scopes: path("realm_access.roles"),
			want: credential.Identity{Owner: "ann lee", Plan: "gold", Scopes: []string{"admin", "offline_access"}},
		},
		{
			name: "a list, and an index", owner: path("accounts.0.id"), plan: path("realm_access.shadow"),
			scopes: &credential.Path{Names: []string{"resource_access", "shop.api", "roles"}},
			want:   credential.Identity{Owner: "a-1", Plan: "whole", Scopes: []string{"write"}},
		},
		{
			name: "Auth0", scopes: path("https://example.com/roles"),
			want: credential.Identity{Owner: "ann", Scopes: []string{"auth0"}},
		},
		{
			name: "absent, and in another form", plan: path("user.plan"), scopes: path("realm_access"),
			want: credential.Identity{Owner: "ann", Absent: []string{"user.plan", "realm_access"}},
		},
		{name: "without the default scope", want: credential.Identity{Owner: "ann"}},
		{name: "without an owner", owner: path("user.id"), wrong: "user.id"},
	} {
		settings := i.settings()
		settings.OwnerClaim, settings.PlanClaim, settings.ScopesClaim = tc.owner, tc.plan, tc.scopes
		v := open(t, jwt.Config{Now: c.now}, settings)
		got, err := v.Identify(t.Context(), settings, s.sign(t, keycloak))
		if e, refused := errors.AsType[*credential.Error](err); refused {
			if e.Cause != "subject" || !slices.Equal(e.Absent, []string{tc.wrong}) {
				t.Errorf("%s: got %v without %q, want one without %q", tc.name, e, e.Absent, tc.wrong)
			}
			continue
		}
		tc.want.Method, tc.want.KeyID, tc.want.Claims = "jwt", "1", got.Claims
		if diff := cmp.Diff(tc.want, got); err != nil || tc.wrong != "" || diff != "" {
			t.Errorf("%s: error %v, (-want +got)\n%s", tc.name, err, diff)
		}
	}
}

// TestCheckForm checks the encoding of tokens.
func TestCheckForm(t *testing.T) {
	s, c := signer{"1", jose.ES256, p256Key()}, &clock{}
	i := newIssuer(t, s)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	good := s.sign(t, nil)
	head, rest, _ := strings.Cut(good, ".")
	body, signature, _ := strings.Cut(rest, ".")
	changed := base64.RawURLEncoding.EncodeToString([]byte(
		strings.Replace(string(must(base64.RawURLEncoding.DecodeString(body))), `"ann"`, `"eve"`, 1)))
	text := func(payload string) string { return tokens.Key(s).Text(t, nil, []byte(payload)) }
	const usual = `"iss":"https://issuer.example","aud":"` + audience + `","exp":1999999999`
	for _, tc := range []struct{ name, token, want string }{
		{"a good token", good, "owner ann"},
		{"empty", "", "invalid: malformed"},
		{"1 MB of dots", strings.Repeat(".", 1<<20), "invalid: oversized"},
		{"8 kB of dots", strings.Repeat(".", 8<<10), "invalid: malformed"},
		{"longer than 8 kB", s.sign(t, claims{"x": strings.Repeat("x", 7<<10)}), "invalid: oversized"},
		{"invalid UTF-8", "\xff\xfe.\xff.\xff", "invalid: malformed"},
		{"NUL", good + "\x00", "invalid: malformed"},
		{"a line break inside", head + ".\n" + rest, "invalid: malformed"},
		{"a blank before it", " " + good, "invalid: malformed"},
		{"with padding", good + "==", "invalid: malformed"},
		{"one part", head, "invalid: malformed"},
		{"two parts", head + "." + body, "invalid: malformed"},
		{"without a signature", head + "." + body + ".", "invalid: malformed"},
		{"four parts", good + "." + signature, "invalid: malformed"},
		{"five parts, as a JWE", strings.Join([]string{head, body, body, body, signature}, "."), "invalid: malformed"},
		{
			"JSON, flattened",
			`{"payload":"` + body + `","protected":"` + head + `","signature":"` + signature + `"}`, "invalid: malformed",
		},
		{
			"JSON, general",
			`{"payload":"` + body + `","signatures":[{"protected":"` + head + `","signature":"` + signature + `"}]}`,
			"invalid: malformed",
		},
		{"a changed payload", head + "." + changed + "." + signature, "invalid: signature"},
		{"a shorter signature", head + "." + body + "." + signature[:80], "invalid: signature"},
		{"a longer signature", good + "AAAA", "invalid: signature"},
		{"a signature of zeros", head + "." + body + "." + strings.Repeat("A", len(signature)), "invalid: signature"},
		{"the other signature that ECDSA allows", head + "." + body + "." + mirrored(t, signature), "owner ann"},
		{"a payload that is not an object", text(`["iss"]`), "invalid: malformed"},
		{"a payload that is null", text(`null`), "invalid: malformed"},
		{"a header that is not JSON", "YWxn." + rest, "invalid: malformed"},
		{"a payload that is not JSON", text(`ann`), "invalid: malformed"},
		{"two payloads", text(`{` + usual + `,"sub":"ann"}{}`), "invalid: malformed"},
		{"a claim twice", text(`{` + usual + `,"sub":"ann","sub":"eve"}`), "invalid: malformed"},
		{"a claim twice, further down", text(`{` + usual + `,"sub":"ann","x":[{"y":1,"y":2}]}`), "invalid: malformed"},
		{"a claim twice, once escaped", text(`{` + usual + `,"sub":"ann","\u0073ub":"eve"}`), "invalid: malformed"},
		{"a claim in capitals", text(`{` + usual + `,"SUB":"ann"}`), "invalid: subject"},
		{"a claim with invalid UTF-8", text(`{` + usual + ",\"sub\":\"a\xff\"}"), "invalid: malformed"},
		{"deep nesting", text(strings.Repeat("[", 5000) + strings.Repeat("]", 900)), "invalid: malformed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check(t, v, settings, tc.token, tc.want)
			check(t, v, settings, tc.token, tc.want)
		})
	}
	if n := len(i.fetched()); n != 1 {
		t.Errorf("the keys were fetched %d times, want once", n)
	}
}

// mirrored returns the signature (r, n−s) for (r, s). Both are valid, so the same token has two texts.
func mirrored(t *testing.T, signature string) string {
	t.Helper()
	raw := must(base64.RawURLEncoding.DecodeString(signature))
	s := new(big.Int).SetBytes(raw[32:])
	s.Sub(p256Key().Params().N, s).FillBytes(raw[32:])
	return base64.RawURLEncoding.EncodeToString(raw)
}
