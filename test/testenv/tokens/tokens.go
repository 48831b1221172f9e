// Package tokens signs tokens (JWT) for tests. It is not part of testenv, because modules without tokens use testenv.
package tokens

import (
	"crypto"
	"encoding/json"
	"testing"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/test/testenv"
)

// Key is a private key with its id (kid) and algorithm.
type Key struct {
	ID        string
	Algorithm jose.SignatureAlgorithm
	Private   crypto.Signer
}

// ES256 returns a new key.
func ES256(t testing.TB, id string) Key {
	t.Helper()
	return Key{id, jose.ES256, testenv.ECKey(t)}
}

// Public returns the public key as a JWK.
func (k Key) Public() jose.JSONWebKey {
	return jose.JSONWebKey{Key: k.Private.Public(), KeyID: k.ID, Algorithm: string(k.Algorithm), Use: "sig"}
}

// Set returns the public key as a JWK Set.
func (k Key) Set(t testing.TB) []byte {
	t.Helper()
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{k.Public()}})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Claims returns a token with these claims.
func (k Key) Claims(t testing.TB, claims map[string]any) string {
	t.Helper()
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return k.Text(t, nil, text)
}

// Text returns a token of any text, under a header with more members.
func (k Key) Text(t testing.TB, more map[string]any, text []byte) string {
	t.Helper()
	options := (&jose.SignerOptions{}).WithType("JWT")
	for name, value := range more {
		options.WithHeader(jose.HeaderKey(name), value)
	}
	key := jose.SigningKey{Algorithm: k.Algorithm, Key: jose.JSONWebKey{Key: k.Private, KeyID: k.ID}}
	signer, err := jose.NewSigner(key, options)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}
