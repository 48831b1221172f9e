package jwt

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// version identifies a set of keys by its content.
type version [sha256.Size]byte

// keySet are the keys of an issuer (RFC 7517, 5). It does not change.
type keySet struct {
	keys    []key
	version version
	// skipped is how many keys of the document cannot be used: of unknown kinds, private, weak, or for encryption.
	skipped int
	read    time.Time
}

// key is a public key with its algorithms.
type key struct {
	id         string // kid; "" for none
	algorithms []jose.SignatureAlgorithm
	public     any // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// parseKeys reads a JWK Set without unusable keys (RFC 7517, 5). An empty set is valid: all keys were withdrawn.
func parseKeys(text []byte) (*keySet, error) {
	var document struct {
		Keys *[]json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("read the JWK Set: %w", withoutContent(err))
	}
	if document.Keys == nil {
		return nil, errors.New("read the JWK Set: it has no list `keys`")
	}
	set := &keySet{version: sha256.Sum256(text)}
	for _, raw := range *document.Keys {
		k, ok := parseKey(raw)
		if !ok {
			set.skipped++
			continue
		}
		set.keys = append(set.keys, k)
	}
	return set, nil
}

// parseKey reads a JWK; ok is false for one that cannot check signatures.
func parseKey(text []byte) (k key, ok bool) {
	var jwk jose.JSONWebKey
	if json.Unmarshal(text, &jwk) != nil || jwk.Use != "" && jwk.Use != "sig" {
		return key{}, false
	}
	algorithms := algorithmsOf(jwk.Key)
	if only := jose.SignatureAlgorithm(jwk.Algorithm); only != "" {
		algorithms = slices.DeleteFunc(algorithms, func(a jose.SignatureAlgorithm) bool { return a != only })
	}
	var more struct {
		Operations []string `json:"key_ops"`
	}
	if json.Unmarshal(text, &more) != nil || more.Operations != nil && !slices.Contains(more.Operations, "verify") {
		return key{}, false
	}
	return key{jwk.KeyID, algorithms, jwk.Key}, len(algorithms) > 0
}

// find returns the keys that may have signed a token: those with its kid, which several keys may share. For a token
// without a kid, it returns a key only if exactly one has the algorithm, so that no client can make it try all keys.
func (s *keySet) find(h header) (found []key) {
	if s == nil {
		return nil
	}
	for _, k := range s.keys {
		if slices.Contains(k.algorithms, h.algorithm) && (h.keyID == "" || k.id == h.keyID) {
			found = append(found, k)
		}
	}
	if h.keyID == "" && len(found) > 1 {
		return nil
	}
	return found
}

// withoutContent returns a JSON error without the content of the document, which must not be logged.
func withoutContent(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	return errors.New("not a JSON object with a list `keys`")
}

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
