package jwt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// BenchmarkCached checks one of 1,000 tokens that have been checked before; -cpu 1,2 shows how it scales.
func BenchmarkCached(b *testing.B) {
	for name, s := range signers() {
		b.Run(name, func(b *testing.B) {
			i, c := newIssuer(b, s), &clock{}
			settings := i.settings()
			v := open(b, jwt.Config{Now: c.now}, settings)
			tokens := make([]string, 1000)
			for n := range tokens {
				tokens[n] = s.sign(b, claims{"jti": fmt.Sprint(n), "scope": strings.Repeat("service.resource:read ", 10)})
				check(b, v, settings, tokens[n], "owner ann")
			}
			b.ReportMetric(float64(len(tokens[0])), "B/token")
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for n := 0; pb.Next(); n++ {
					if _, err := v.Identify(b.Context(), settings, tokens[n%len(tokens)]); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkVerify checks tokens that are new: the cache is too small for two.
func BenchmarkVerify(b *testing.B) {
	for name, s := range signers() {
		b.Run(name, func(b *testing.B) {
			i, c := newIssuer(b, s), &clock{}
			settings := i.settings()
			v := open(b, jwt.Config{Now: c.now}, settings)
			v.ShrinkCache()
			tokens := make([]string, 512)
			for n := range tokens {
				tokens[n] = s.sign(b, claims{"jti": fmt.Sprint(n), "scope": strings.Repeat("service.resource:read ", 10)})
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				if _, err := v.Identify(b.Context(), settings, tokens[n%len(tokens)]); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkRefuse refuses tokens that are no good, as an attacker would send them.
func BenchmarkRefuse(b *testing.B) {
	s, c := signer{"1", jose.RS256, rsaKey()}, &clock{}
	i := newIssuer(b, s)
	settings := i.settings()
	v := open(b, jwt.Config{Now: c.now}, settings)
	for name, token := range map[string]string{
		"oversized":   strings.Repeat(".", 1<<20),
		"dots":        strings.Repeat(".", 8<<10),
		"alg none":    forge(map[string]any{"alg": "none"}, hs256(nil)),
		"unknown key": signer{"2", jose.RS256, rsaKey()}.sign(b, nil),
		"wrong key":   signer{"1", jose.RS256, rsaOther()}.sign(b, nil),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Identify(b.Context(), settings, token); err == nil {
					b.Fatal("accepted")
				}
			}
		})
	}
}

func signers() map[string]signer {
	return map[string]signer{
		"RS256": {"1", jose.RS256, rsaKey()}, "ES256": {"1", jose.ES256, p256Key()}, "EdDSA": {"1", jose.EdDSA, ed25519Key()},
	}
}
