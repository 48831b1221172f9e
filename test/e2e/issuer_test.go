package e2e

import (
	"crypto/ecdsa"
	"encoding/json"
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/extauthz/extauthz/internal/testenv"
)

// issuer makes tokens and publishes its public key in a file.
type issuer struct {
	file    string
	private *ecdsa.PrivateKey
	kid     string
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{file: filepath.Join(t.TempDir(), "jwks.json")}
	i.rotate(t, "first")
	return i
}

// rotate replaces the key by a new one with this id, and publishes only the new one.
func (i *issuer) rotate(t *testing.T, kid string) {
	t.Helper()
	i.private, i.kid = testenv.ECKey(t), kid
	public := jose.JSONWebKey{Key: i.private.Public(), KeyID: kid, Algorithm: string(jose.ES256), Use: "sig"}
	content, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}})
	if err != nil {
		t.Fatal(err)
	}
	replace(t, i.file, string(content))
}

// claims are the claims of a token.
type claims map[string]any

// token returns a signed token that is valid for an hour. The claims in differ override the defaults.
func (i *issuer) token(t *testing.T, differ claims) string {
	t.Helper()
	key := jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: i.private, KeyID: i.kid}}
	signer, err := jose.NewSigner(key, (&jose.SignerOptions{}).WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	all := claims{"iss": "https://issuer.example", "aud": "shop", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, differ)
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// bearer returns the header with a token.
func (i *issuer) bearer(t *testing.T, differ claims) [2]string {
	t.Helper()
	return [2]string{"authorization", "Bearer " + i.token(t, differ)}
}
