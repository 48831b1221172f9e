package jwt_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/authz/jwt"
	"github.com/extauthz/extauthz/test/testenv/tokens"
)

// audience is this service, for the issuers of the tests.
const audience = "https://api.example.org"

// noon is when the tests begin.
var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// clock is a time that passes only when a test advances it.
type clock struct{ passed atomic.Int64 }

func (c *clock) now() time.Time                  { return noon.Add(time.Duration(c.passed.Load())) }
func (c *clock) advance(d time.Duration)         { c.passed.Add(int64(d)) }
func (c *clock) at(d time.Duration) (unix int64) { return noon.Add(d).Unix() }

// The keys are made once, because that is slow.
var (
	rsaKey     = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	rsaOther   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	p256Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC(elliptic.P256()) })
	p384Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC(elliptic.P384()) })
	p521Key    = sync.OnceValue(func() *ecdsa.PrivateKey { return newEC(elliptic.P521()) })
	ed25519Key = sync.OnceValue(func() ed25519.PrivateKey {
		return ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	})
)

func newEC(curve elliptic.Curve) *ecdsa.PrivateKey {
	return must(ecdsa.GenerateKey(curve, rand.Reader))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// signer signs the tokens of an issuer.
type signer tokens.Key

func es256(id string) signer { return signer{id, jose.ES256, newEC(elliptic.P256())} }

// public returns the public key as a JWK.
func (s signer) public() jose.JSONWebKey { return tokens.Key(s).Public() }

// claims are those of a token; a nil one leaves a claim of the default out.
type claims map[string]any

// sign makes a token of issuer.example for Ann, with claims that differ.
func (s signer) sign(t testing.TB, differ claims) string {
	t.Helper()
	all := claims{
		"iss": "https://issuer.example", "aud": audience, "sub": "ann",
		"exp": noon.Add(time.Hour).Unix(), "iat": noon.Unix(),
	}
	maps.Copy(all, differ)
	maps.DeleteFunc(all, func(_ string, v any) bool { return v == nil })
	return tokens.Key(s).Claims(t, all)
}

// issuer is a server with keys.
type issuer struct {
	*httptest.Server // nil in a bubble

	mu      sync.Mutex
	answer  http.HandlerFunc
	fetches []fetch
}

// fetch is a request for keys.
type fetch struct {
	path string
	at   time.Time
}

func newIssuer(t testing.TB, keys ...signer) *issuer {
	i := &issuer{}
	i.publish(keys...)
	i.Server = httptest.NewServer(http.HandlerFunc(i.handle))
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) handle(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	i.fetches = append(i.fetches, fetch{r.URL.Path, time.Now()})
	answer := i.answer
	i.mu.Unlock()
	answer(w, r)
}

// fetched is what has been fetched so far.
func (i *issuer) fetched() []fetch {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.fetches)
}

// publish makes these the issuer's keys.
func (i *issuer) publish(keys ...signer) { i.serve(document(keys...)) }

// serve makes this the issuer's document.
func (i *issuer) serve(document []byte) {
	i.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) })
}

func (i *issuer) answers(h http.HandlerFunc) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.answer = h
}

// document is the JWK Set of keys.
func document(keys ...signer) []byte {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range keys {
		set.Keys = append(set.Keys, k.public())
	}
	return must(json.Marshal(set))
}

// settings accept the issuer's tokens.
func (i *issuer) settings() *jwt.Credential { return settingsFor(i.URL) }

// settingsFor accept tokens of the issuer whose keys are at a URL.
func settingsFor(keysURL string) *jwt.Credential {
	return &jwt.Credential{
		Issuer: new("https://issuer.example"), Audiences: []string{audience}, Leeway: 30 * time.Second,
		JWKSURL:    new(keysURL),
		Algorithms: []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"},
	}
}

// open returns a verifier with these issuers.
func open(t testing.TB, cfg jwt.Config, settings ...*jwt.Credential) *jwt.Verifier {
	t.Helper()
	v := jwt.New(cfg)
	t.Cleanup(v.Close)
	v.SetIssuers(settings)
	return v
}

// outcome returns the result of Check in words: the owner, or the kind and the reason of the error.
func outcome(id credential.Identity, err error) string {
	if err == nil {
		return "owner " + id.Owner
	}
	e, ok := errors.AsType[*credential.Error](err)
	if !ok {
		return "no *CredentialError: " + err.Error()
	}
	for kind, word := range map[error]string{
		credential.ErrInvalid: "invalid", credential.ErrExpired: "expired",
		credential.ErrNotYet: "not yet", credential.ErrUnavailable: "unavailable",
	} {
		if errors.Is(err, kind) {
			return word + ": " + e.Cause
		}
	}
	return "no kind: " + err.Error()
}

// check fails the test if the outcome of Check is another one.
func check(t testing.TB, v *jwt.Verifier, settings *jwt.Credential, token, want string) {
	t.Helper()
	if got := outcome(v.Identify(t.Context(), settings, token)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// briefly returns the context of a request with this much time.
func briefly(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
