package jwt

import (
	"encoding/base64"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// AcceptsZeros reports whether a key in a JWK Set accepts a signature of zeros, and for which algorithm.
func AcceptsZeros(document []byte) (algorithm string, accepted bool) {
	set, err := parseKeys(document)
	if err != nil {
		return "", false
	}
	for algorithm, length := range map[jose.SignatureAlgorithm]int{
		jose.RS256: 256, jose.PS512: 256, jose.ES256: 64, jose.ES384: 96, jose.ES512: 132, jose.EdDSA: 64,
	} {
		head := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"` + string(algorithm) + `"}`))
		zeros := base64.RawURLEncoding.EncodeToString(make([]byte, length))
		t, err := parse(strings.Join([]string{head, "e30", zeros}, "."), []jose.SignatureAlgorithm{algorithm})
		if err != nil {
			return err.Error(), true
		}
		if _, accepted := t.signedBy(set.keys); accepted {
			return string(algorithm), true
		}
	}
	return "", false
}
