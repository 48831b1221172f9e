package jwt

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"

	"github.com/go-jose/go-jose/v4"
)

// The sizes of RSA keys in bits. RFC 7518, 3.3 demands the minimum. Above the maximum, a check takes milliseconds.
const minRSA, maxRSA = 2048, 8192

// algorithmsOf returns the algorithms whose signatures a key may check. A secret, private or weak key has none.
func algorithmsOf(public any) []jose.SignatureAlgorithm {
	switch k := public.(type) {
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits >= minRSA && bits <= maxRSA {
			return []jose.SignatureAlgorithm{jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512}
		}
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			return []jose.SignatureAlgorithm{jose.ES256}
		case elliptic.P384():
			return []jose.SignatureAlgorithm{jose.ES384}
		case elliptic.P521():
			return []jose.SignatureAlgorithm{jose.ES512}
		}
	case ed25519.PublicKey:
		if len(k) == ed25519.PublicKeySize {
			return []jose.SignatureAlgorithm{jose.EdDSA}
		}
	}
	return nil
}
