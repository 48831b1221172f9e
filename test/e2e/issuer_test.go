package e2e

import (
	"maps"
	"path/filepath"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv/tokens"
)

// issuer makes tokens and publishes its public key in a file.
type issuer struct {
	file string
	key  tokens.Key
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
	i.key = tokens.ES256(t, kid)
	replace(t, i.file, string(i.key.Set(t)))
}

// claims are the claims of a token.
type claims map[string]any

// token returns a signed token that is valid for an hour. The claims in differ override the defaults.
func (i *issuer) token(t *testing.T, differ claims) string {
	t.Helper()
	all := claims{"iss": "https://issuer.example", "aud": "shop", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, differ)
	return i.key.Claims(t, all)
}

// bearer returns the header with a token.
func (i *issuer) bearer(t *testing.T, differ claims) [2]string {
	t.Helper()
	return [2]string{"authorization", "Bearer " + i.token(t, differ)}
}
