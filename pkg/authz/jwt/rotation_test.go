package jwt_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz/jwt"
)

// TestRotation: the keys of an issuer change while tokens are checked. Each step names the outcome of each token after
// it, and all checks have that outcome.
func TestRotation(t *testing.T) {
	first, second, foreign, c := es256("first"), es256("second"), es256("first"), &clock{}
	i := newIssuer(t, first)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	lasting := claims{"exp": c.at(24 * time.Hour)}
	const workers, each = 4, 50
	for n, step := range []struct {
		name          string
		publish       []signer
		first, second string
	}{
		{name: "before", publish: []signer{first}, first: "owner ann", second: "invalid: unknown_key"},
		{name: "the next key is published", publish: []signer{first, second}, first: "owner ann", second: "owner ann"},
		{name: "the first key is withdrawn", publish: []signer{second}, first: "invalid: unknown_key", second: "owner ann"},
		{name: "the first key comes back", publish: []signer{second, first}, first: "owner ann", second: "owner ann"},
	} {
		i.publish(step.publish...)
		c.advance(31 * time.Second)
		// An unknown kid causes a fetch, which finds the withdrawal at once. Without it, that takes an interval.
		check(t, v, settings, es256("unknown").sign(t, lasting), "invalid: unknown_key")
		var running sync.WaitGroup
		for w := range workers {
			running.Go(func() {
				for r := range each {
					differ := claims{"exp": lasting["exp"], "jti": fmt.Sprint(n, w, r/2)} // each twice: verified, then cached
					check(t, v, settings, first.sign(t, differ), step.first)
					check(t, v, settings, second.sign(t, differ), step.second)
					if step.first == "owner ann" {
						check(t, v, settings, foreign.sign(t, differ), "invalid: signature")
					}
				}
			})
		}
		running.Wait()
		if t.Failed() {
			t.Fatalf("in the step: %s", step.name)
		}
	}
	if n := len(i.fetched()); n != 5 {
		t.Errorf("%d fetches, want 5: at the start, and one each step", n)
	}
}

// TestNewKeyInTraffic: many concurrent requests with a new kid wait for the same fetch.
func TestNewKeyInTraffic(t *testing.T) {
	first, second, c := es256("first"), es256("second"), &clock{}
	i := newIssuer(t, first)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	check(t, v, settings, first.sign(t, nil), "owner ann")
	i.publish(first, second)
	c.advance(31 * time.Second)
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			check(t, v, settings, second.sign(t, nil), "owner ann")
			check(t, v, settings, first.sign(t, nil), "owner ann")
		})
	}
	running.Wait()
	if n := len(i.fetched()); n != 2 {
		t.Errorf("%d fetches, want 2", n)
	}
}

// TestWithdrawnKeyLeavesTheCache: a token stays in the cache until its key is withdrawn.
func TestWithdrawnKeyLeavesTheCache(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	token := s.sign(t, nil)
	for _, step := range []struct {
		publish []byte
		want    string
	}{
		{document(s), "owner ann"},
		{document(es256("1")), "invalid: signature"}, // the same kid, another key
		{document(s), "owner ann"},
		{document(), "invalid: unknown_key"}, // all keys withdrawn
	} {
		i.serve(step.publish)
		c.advance(31 * time.Second)
		check(t, v, settings, es256("unknown").sign(t, nil), "invalid: unknown_key")
		check(t, v, settings, token, step.want)
		check(t, v, settings, token, step.want)
	}
}

func TestFloodOfUnknownKids(t *testing.T) {
	s, c := es256("1"), &clock{}
	i := newIssuer(t, s)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	var kid atomic.Int64
	flood := func() {
		var running sync.WaitGroup
		for range 4 {
			running.Go(func() {
				for range 100 {
					unknown := signer{fmt.Sprint("kid", kid.Add(1)), jose.ES256, p256Key()}
					check(t, v, settings, unknown.sign(t, nil), "invalid: unknown_key")
				}
			})
		}
		running.Wait()
	}
	for round := range 4 {
		flood()
		if n := len(i.fetched()); n != 1+round {
			t.Fatalf("%d fetches, want %d: one at the start, and one every 30 s", n, 1+round)
		}
		c.advance(29 * time.Second)
		flood()
		if n := len(i.fetched()); n != 1+round {
			t.Fatalf("%d fetches after 29 s, want %d", n, 1+round)
		}
		c.advance(time.Second)
	}
	// Tokens that are invalid with any key cause no fetch.
	before := len(i.fetched())
	c.advance(time.Minute)
	unknown := signer{"unknown", jose.ES256, p256Key()}
	check(t, v, settings, unknown.sign(t, claims{"iss": "https://other.example"}), "invalid: issuer")
	check(t, v, settings, unknown.sign(t, claims{"aud": "other"}), "invalid: audience")
	check(t, v, settings, unknown.sign(t, claims{"exp": 1}), "invalid: unknown_key")
	if n := len(i.fetched()); n != before {
		t.Errorf("%d more fetches for tokens that are invalid with any key", n-before)
	}
}

// TestSeveralKeysOfOneKid: if several keys share a kid, those of the right kind are tried one by one.
func TestSeveralKeysOfOneKid(t *testing.T) {
	c := &clock{}
	ec, other := signer{"same", jose.ES256, p256Key()}, es256("same")
	rs := signer{"same", jose.RS256, rsaKey()}
	i := newIssuer(t, rs, other, ec)
	settings := i.settings()
	v := open(t, jwt.Config{Now: c.now}, settings)
	for _, s := range []signer{rs, other, ec} {
		check(t, v, settings, s.sign(t, nil), "owner ann")
	}
	check(t, v, settings, es256("same").sign(t, nil), "invalid: signature")
	check(t, v, settings, signer{"", jose.ES256, p256Key()}.sign(t, nil), "invalid: unknown_key") // which of two?
	check(t, v, settings, signer{"", jose.RS256, rsaKey()}.sign(t, nil), "owner ann")
}

// TestKeysThatAreSkipped: a set has a key that must not be used beside a valid one.
func TestKeysThatAreSkipped(t *testing.T) {
	c, good := &clock{}, signer{"good", jose.RS256, rsaOther()}
	public := string(must(signer{"1", "", rsaKey()}.public().MarshalJSON()))
	private := string(must(jose.JSONWebKey{Key: rsaKey(), KeyID: "1"}.MarshalJSON()))
	ours := string(must(good.public().MarshalJSON()))
	change := func(old, replacement string) string { return strings.Replace(public, old, replacement, 1) }
	for _, tc := range []struct{ name, key, want string }{
		{"a public key", public, "owner ann"},
		{"for no named use", change(`"use":"sig",`, ``), "owner ann"},
		{"for encryption", change(`"use":"sig"`, `"use":"enc"`), "invalid: unknown_key"},
		{"to verify", change(`"use":"sig"`, `"key_ops":["verify"]`), "owner ann"},
		{"to encrypt", change(`"use":"sig"`, `"key_ops":["encrypt"]`), "invalid: unknown_key"},
		{"for another algorithm", change(`"use":"sig"`, `"alg":"PS256"`), "invalid: unknown_key"},
		{"for HMAC", change(`"use":"sig"`, `"alg":"HS256"`), "invalid: unknown_key"},
		{"a private key, which is compromised", private, "invalid: unknown_key"},
		{"a secret", `{"kty":"oct","kid":"1","k":"c2VjcmV0"}`, "invalid: unknown_key"},
		{"an unknown kind", `{"kty":"XYZ","kid":"1"}`, "invalid: unknown_key"},
		{"a weak key", `{"kty":"RSA","kid":"1","e":"AQAB","n":"` + strings.Repeat("_", 171) + `"}`, "invalid: unknown_key"},
		{"a member twice", change(`"kid":"1"`, `"kid":"1","kid":"1"`), "invalid: unknown_key"},
		{"no object", `7`, "invalid: unknown_key"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := newIssuer(t)
			i.serve([]byte(`{"keys":[` + tc.key + `,` + ours + `]}`))
			settings := i.settings()
			v := open(t, jwt.Config{Now: c.now}, settings)
			check(t, v, settings, good.sign(t, nil), "owner ann")
			check(t, v, settings, signer{"1", jose.RS256, rsaKey()}.sign(t, nil), tc.want)
		})
	}
}
