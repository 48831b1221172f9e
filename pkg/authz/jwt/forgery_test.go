package jwt_test

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"maps"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// Ann's claims, as a forger would write them.
const forged = `{"iss":"https://issuer.example","aud":"` + audience + `","sub":"ann","exp":1999999999}`

// forge makes a token of a header and what signs the two parts.
func forge(head map[string]any, sign func(input []byte) []byte) string {
	b64 := base64.RawURLEncoding
	input := b64.EncodeToString(must(json.Marshal(head))) + "." + b64.EncodeToString([]byte(forged))
	return input + "." + b64.EncodeToString(sign([]byte(input)))
}

func hs256(secret []byte) func([]byte) []byte {
	return func(input []byte) []byte {
		mac := hmac.New(sha256.New, secret)
		mac.Write(input)
		return mac.Sum(nil)
	}
}

func rs256(k *rsa.PrivateKey) func([]byte) []byte {
	return func(input []byte) []byte {
		sum := sha256.Sum256(input)
		return must(rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:]))
	}
}

func TestCheckForgeries(t *testing.T) {
	ours := signer{"1", jose.RS256, rsaKey()}
	i, c := newIssuer(t, ours, signer{"ec", jose.ES256, p256Key()}), &clock{}
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)

	public := &rsaKey().PublicKey
	pkix := must(x509.MarshalPKIXPublicKey(public))
	pkcs1 := x509.MarshalPKCS1PublicKey(public)
	asPEM := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	with := func(more map[string]any) map[string]any {
		head := map[string]any{"alg": "RS256", "kid": "1"}
		maps.Copy(head, more)
		return head
	}
	alg := func(name string) map[string]any { return with(map[string]any{"alg": name}) }
	kid := func(name any) map[string]any { return with(map[string]any{"kid": name}) }
	right, wrong := rs256(rsaKey()), rs256(rsaOther())
	otherJWK := signer{"1", jose.RS256, rsaOther()}.public()
	for _, tc := range []struct{ name, token, want string }{
		{"the issuer's own", forge(with(nil), right), "owner ann"},
		{"another key", forge(with(nil), wrong), "invalid: signature"},
		{"alg none", forge(alg("none"), func([]byte) []byte { return []byte{0} }), "invalid: algorithm"},
		{"alg None", forge(alg("None"), right), "invalid: algorithm"},
		{
			"alg nOnE without a signature",
			strings.TrimSuffix(forge(alg("nOnE"), func([]byte) []byte { return nil }), "."), "invalid: malformed",
		},
		{"alg missing", forge(map[string]any{"kid": "1"}, right), "invalid: algorithm"},
		{"alg that is a list", forge(with(map[string]any{"alg": []string{"RS256"}}), right), "invalid: malformed"},
		{"alg in small letters", forge(alg("rs256"), right), "invalid: algorithm"},
		{
			"HS256 with the public key, PKIX in PEM",
			forge(alg("HS256"), hs256(asPEM("PUBLIC KEY", pkix))), "invalid: algorithm",
		},
		{
			"HS256 with the public key, PKCS #1 in PEM",
			forge(alg("HS256"), hs256(asPEM("RSA PUBLIC KEY", pkcs1))), "invalid: algorithm",
		},
		{"HS256 with the public key, PKIX in DER", forge(alg("HS256"), hs256(pkix)), "invalid: algorithm"},
		{"HS256 with the public key, PKCS #1 in DER", forge(alg("HS256"), hs256(pkcs1)), "invalid: algorithm"},
		{"HS256 with the modulus", forge(alg("HS256"), hs256(public.N.Bytes())), "invalid: algorithm"},
		{"HS256 with no secret", forge(alg("HS256"), hs256(nil)), "invalid: algorithm"},
		{"RS256 under the name of PS256", forge(alg("PS256"), right), "invalid: unknown_key"},
		{"RS256 under the name of ES256", forge(alg("ES256"), right), "invalid: unknown_key"},
		{"RS256 with the kid of an EC key", forge(kid("ec"), right), "invalid: unknown_key"},
		{"kid is a file", forge(kid("../../../../dev/null"), hs256(nil)), "invalid: unknown_key"},
		{"kid is an absolute file", forge(kid("/etc/passwd"), wrong), "invalid: unknown_key"},
		{"kid is a URL", forge(kid("https://evil.example/jwks.json"), wrong), "invalid: unknown_key"},
		{"kid is SQL", forge(kid("1' UNION SELECT 'secret"), wrong), "invalid: unknown_key"},
		{"kid is a command", forge(kid("1|whoami"), wrong), "invalid: unknown_key"},
		{"kid is a number", forge(kid(1), right), "invalid: malformed"},
		{"kid is an object", forge(kid(map[string]any{"$ne": ""}), right), "invalid: malformed"},
		{"no kid, and one key for the algorithm", forge(map[string]any{"alg": "RS256"}, right), "owner ann"},
		{"no kid, and another key", forge(map[string]any{"alg": "RS256"}, wrong), "invalid: signature"},
		{"jku", forge(with(map[string]any{"jku": "https://evil.example/jwks.json"}), wrong), "invalid: header"},
		{"jku, with a right signature", forge(with(map[string]any{"jku": i.URL}), right), "invalid: header"},
		{"jwk", forge(with(map[string]any{"jwk": otherJWK}), wrong), "invalid: header"},
		{"x5u", forge(with(map[string]any{"x5u": "https://evil.example/cert.pem"}), wrong), "invalid: header"},
		{"x5c", forge(with(map[string]any{"x5c": []string{"AAAA"}}), wrong), "invalid: header"},
		{"crit", forge(with(map[string]any{"crit": []string{"exp"}, "exp": 1}), right), "invalid: header"},
		{"crit, empty", forge(with(map[string]any{"crit": []string{}}), right), "invalid: header"},
		{"crit is null", forge(with(map[string]any{"crit": nil}), right), "invalid: header"},
		{"b64", forge(with(map[string]any{"b64": false}), right), "invalid: header"},
		{"zip", forge(with(map[string]any{"zip": "DEF"}), right), "invalid: header"},
		{"enc", forge(with(map[string]any{"enc": "A256GCM"}), right), "invalid: header"},
		{"typ is an access token's", forge(with(map[string]any{"typ": "at+JWT"}), right), "owner ann"},
		{"typ is a logout token's", forge(with(map[string]any{"typ": "logout+jwt"}), right), "invalid: type"},
		{"typ is that of a proof", forge(with(map[string]any{"typ": "application/dpop+jwt"}), right), "invalid: type"},
	} {
		t.Run(tc.name, func(t *testing.T) { check(t, v, settings, tc.token, tc.want) })
	}
}

// TestCheckIssuersApart: two issuers have different keys with the same kid, and tokens with equal claims.
func TestCheckIssuersApart(t *testing.T) {
	c := &clock{}
	one, other := es256("same"), es256("same")
	i, j := newIssuer(t, one), newIssuer(t, other)
	ours, theirs, posing := i.settings(), j.settings(), j.settings()
	theirs.Issuer = new("https://other.example")
	v := open(t, jwt.Config{Now: c.now}, ours, theirs, posing)
	token := one.sign(t, nil)
	their := other.sign(t, claims{"iss": *theirs.Issuer})
	for range 2 { // verified, then cached
		check(t, v, ours, token, "owner ann")
		check(t, v, theirs, token, "invalid: issuer")
		check(t, v, theirs, their, "owner ann")
		check(t, v, ours, their, "invalid: issuer")
		check(t, v, ours, other.sign(t, nil), "invalid: signature")
		check(t, v, posing, token, "invalid: signature")
	}
	if n := len(i.fetched()) + len(j.fetched()); n != 2 {
		t.Errorf("%d fetches, want one of each issuer", n)
	}
}

// TestErrorsHoldNothingOfTheToken: errors, which are logged, contain no part of the token.
func TestErrorsHoldNothingOfTheToken(t *testing.T) {
	s, c := es256("canary-kid"), &clock{}
	i := newIssuer(t)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	for _, token := range []string{
		s.sign(t, nil), "canary", "canary.canary.canary", forge(map[string]any{"alg": "canary"}, hs256(nil)),
	} {
		_, err := v.Identify(t.Context(), settings, token)
		if err == nil || strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), token) {
			t.Errorf("error %v for %q", err, token)
		}
	}
}
