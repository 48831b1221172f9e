package jwt_test

import (
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// FuzzCheck: no text without a signature of the issuer is accepted, and none makes Check panic.
func FuzzCheck(f *testing.F) {
	ours, c := signer{"1", jose.ES256, p256Key()}, &clock{}
	i := newIssuer(f, ours, signer{"1", jose.RS256, rsaKey()}, signer{"ed", jose.EdDSA, ed25519Key()})
	settings := i.settings()
	v := open(f, jwt.Config{Now: c.now}, settings)
	good := ours.sign(f, nil)
	check(f, v, settings, good, "owner ann")
	// The issuer has not signed the seeds, so an accepted text is a forgery. The fuzzer cannot find a signature by chance.
	for _, s := range []signer{{"1", jose.ES256, newEC(p384Key().Curve)}, {"ed", jose.RS256, rsaOther()}} {
		if s.Algorithm == jose.ES256 {
			s.Algorithm = jose.ES384
		}
		f.Add(s.sign(f, nil))
	}
	head, _, _ := strings.Cut(good, ".")
	f.Add(head + ".e30.AAAA")
	f.Add(forge(map[string]any{"alg": "none", "kid": "1"}, hs256(nil)))
	f.Add(forge(map[string]any{"alg": "RS256", "kid": "1", "jku": i.URL}, hs256(nil)))
	f.Add("{}..")
	f.Add("\xff.\x00.é")
	f.Fuzz(func(t *testing.T, token string) {
		got := outcome(v.Identify(t.Context(), settings, token))
		if !strings.HasPrefix(got, "invalid: ") {
			t.Errorf("got %q for %q", got, token)
		}
	})
}

// FuzzKeys: an issuer publishes any document. No key of it accepts a signature of zeros.
func FuzzKeys(f *testing.F) {
	s := signer{"1", jose.ES256, p256Key()}
	f.Add(document(s))
	f.Add(document(s, signer{"2", jose.RS256, rsaKey()}, signer{"3", jose.EdDSA, ed25519Key()}))
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"1","n":"AA","e":"AAAA"},{"kty":"EC","crv":"P-256","x":"","y":""}]}`))
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"AA","kid":"1"},{"kty":"oct","k":"","kid":"1"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if algorithm, accepted := jwt.AcceptsZeros(text); accepted {
			t.Errorf("a signature of zeros is accepted for %s by the keys in %q", algorithm, text)
		}
	})
}
