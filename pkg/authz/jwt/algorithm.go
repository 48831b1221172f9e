package jwt

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"

	"github.com/go-jose/go-jose/v4"
)

// suits reports whether a key may check signatures of an algorithm: it is of that kind, and not meant for another.
func (k key) suits(algorithm jose.SignatureAlgorithm) bool {
	if k.algorithm != "" && k.algorithm != algorithm {
		return false
	}
	switch public := k.public.(type) {
	case *rsa.PublicKey:
		switch algorithm {
		case jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512:
			return true
		}
	case *ecdsa.PublicKey:
		return public.Curve == curves[algorithm]
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// curves are those that the algorithms with elliptic curves demand.
var curves = map[jose.SignatureAlgorithm]elliptic.Curve{
	jose.ES256: elliptic.P256(), jose.ES384: elliptic.P384(), jose.ES512: elliptic.P521(),
}

// The sizes of RSA keys in bits: RFC 7518, 3.3 demands the least; above the largest a check takes milliseconds.
const minRSA, maxRSA = 2048, 8192

// usable reports whether signatures may be checked with a key at all: it is public, and strong enough.
func usable(public any) bool {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSA && k.N.BitLen() <= maxRSA
	case *ecdsa.PublicKey:
		return k.Curve == elliptic.P256() || k.Curve == elliptic.P384() || k.Curve == elliptic.P521()
	case ed25519.PublicKey:
		return len(k) == ed25519.PublicKeySize
	}
	return false // a secret, or a private key, which is none any more
}
