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
		t, err := parse(strings.Join([]string{head, "e30", zeros}, "."), []string{string(algorithm)})
		if err != nil {
			return err.Error(), true
		}
		if _, accepted := t.signedBy(set.keys); accepted {
			return string(algorithm), true
		}
	}
	return "", false
}

// Cached returns how many verified tokens are known, expired ones that no request has asked for among them.
func (v *Verifier) Cached() int { return v.cache.len() }

// ShrinkCache makes room for one token in each shard of the cache, and forgets all tokens.
func (v *Verifier) ShrinkCache() { v.cache = newCache(1) }

// len is how many tokens are known.
func (c *cache) len() (n int) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		n += len(s.young) + len(s.old)
		s.mu.Unlock()
	}
	return n
}

// FillInactive adds a token that is not active to the cache.
func (i *Introspector) FillInactive(token string) {
	i.inactive.put(new(Opaque).key(token), cached{expires: i.cfg.Now().Add(inactiveFor), weight: 1})
}
