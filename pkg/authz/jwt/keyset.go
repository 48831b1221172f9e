package jwt

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/json"
)

// version tells the sets of keys apart, by their content.
type version [sha256.Size]byte

// keySet are the keys of an issuer (RFC 7517, 5). It does not change.
type keySet struct {
	keys    []key
	version version
	// skipped is how many keys of the document cannot be used: of unknown kinds, private, weak, or for encryption.
	skipped int
}

// key is a public key, and what it is for.
type key struct {
	id         string // kid; "" for none
	algorithms []jose.SignatureAlgorithm
	public     any // *rsa.PublicKey, *ecdsa.PublicKey or ed25519.PublicKey
}

// parseKeys reads a JWK Set. A key that cannot be used is skipped, as RFC 7517, 5 asks for; a document that is no JWK Set is an
// error. A set without keys is one: its issuer has withdrawn them all.
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

// find returns the keys with which a token can be checked: those of its kid, should an issuer give one to several. A token without
// a kid has a key only when just one suits its algorithm, so that nobody can make us try all.
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

// withoutContent leaves out of an error of JSON what was read, which belongs in no log.
func withoutContent(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not JSON at byte %d", syntax.Offset)
	}
	return errors.New("not a JSON object with a list `keys`")
}
