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
		return public.Curve == curveOf(algorithm)
	case ed25519.PublicKey:
		return algorithm == jose.EdDSA
	}
	return false
}

// curveOf is the curve that an algorithm demands; nil for those without.
func curveOf(algorithm jose.SignatureAlgorithm) elliptic.Curve {
	switch algorithm {
	case jose.ES256:
		return elliptic.P256()
	case jose.ES384:
		return elliptic.P384()
	case jose.ES512:
		return elliptic.P521()
	}
	return nil
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
