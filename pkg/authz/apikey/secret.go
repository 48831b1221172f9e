package apikey

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"strings"
	"sync"

	"github.com/extauthz/extauthz/internal/texts"
)

// minSecret is the least length of a server secret in bytes. `extauthz keys secret` makes 44, for 256 random bits.
const minSecret = 16

// NewServerSecret returns a fresh server secret: 32 random bytes in base 64.
func NewServerSecret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.StdEncoding.EncodeToString(b[:])
}

// Secret is the server secret: the key of the HMACs that stores keep of API keys. No store has it. While it is being
// replaced, there are two. Use NewSecret. It is safe for concurrent use, and it never prints.
type Secret struct {
	// peppers has the current secret first.
	peppers []*pepper
}

type pepper struct {
	fingerprint   fingerprint
	macs, sealers *hmacs // of API keys, and of seals
}

// hmacs makes HMAC-SHA-256 under one key.
type hmacs struct{ sync.Pool } // of *keyed: to make one costs as much as to use it

// keyed is a hash with a key, and memory for its sum.
type keyed struct {
	hash.Hash
	sum digest
}

func newHMACs(key []byte) *hmacs {
	return &hmacs{sync.Pool{New: func() any { return &keyed{Hash: hmac.New(sha256.New, key)} }}}
}

// sum returns the HMAC of the concatenated parts.
func (h *hmacs) sum(parts ...[]byte) digest {
	mac := h.Get().(*keyed)
	mac.Reset()
	for _, part := range parts {
		_, _ = mac.Write(part) // a hash never fails
	}
	mac.Sum(mac.sum[:0])
	d := mac.sum
	h.Put(mac)
	return d
}

// fingerprint names the server secret of a hash. It distinguishes a hash of another secret from one of a wrong key.
type fingerprint [4]byte

// NewSecret returns the current secret with the previous one, "" for none. The error never holds a secret.
func NewSecret(current, previous string) (*Secret, error) {
	s := new(Secret)
	for _, p := range []struct{ name, text string }{
		{"the server secret", current}, {"the previous server secret", previous},
	} {
		switch {
		case p.text == "" && len(s.peppers) > 0:
		case len(p.text) < minSecret:
			return nil, fmt.Errorf("%s has %d bytes: want %d or more", p.name, len(p.text), minSecret)
		default:
			pepper, err := newPepper(p.text)
			if err != nil {
				return nil, err
			}
			s.peppers = append(s.peppers, pepper)
		}
	}
	if len(s.peppers) == 2 && s.peppers[0].fingerprint == s.peppers[1].fingerprint {
		s.peppers = s.peppers[:1]
	}
	return s, nil
}

// String keeps the secret out of messages.
func (*Secret) String() string { return "(secret)" }

func newPepper(text string) (*pepper, error) {
	key, err := hkdf.Key(sha256.New, []byte(text), nil, sealingKey, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive a key from the server secret: %w", err)
	}
	p := &pepper{macs: newHMACs([]byte(text)), sealers: newHMACs(key)}
	name := p.digest("extauthz: the name of this secret")
	copy(p.fingerprint[:], name[:])
	return p, nil
}

func (p *pepper) digest(text string) digest { return p.macs.sum(texts.Bytes(text)) }

type digest [sha256.Size]byte

// Hash is the HMAC of a key, with the name of the server secret that made it. No key has the zero value.
type Hash struct {
	secret fingerprint
	digest digest
}

// Hash returns the hash of a key under the current secret.
func (s *Secret) Hash(key string) Hash {
	return Hash{secret: s.peppers[0].fingerprint, digest: s.peppers[0].digest(key)}
}

// candidates are the hashes that a key would have: one for each server secret.
type candidates struct {
	hashes [2]Hash
	count  int
}

func (s *Secret) candidates(key string) (c candidates) {
	for _, p := range s.peppers {
		c.hashes[c.count] = Hash{secret: p.fingerprint, digest: p.digest(key)}
		c.count++
	}
	return c
}

// match reports whether the key has this hash. It takes the same time for all hashes, also for the zero value.
func (c *candidates) match(h *Hash) bool {
	candidate := &c.hashes[0]
	if c.count > 1 && c.hashes[1].secret == h.secret { // fingerprints are public
		candidate = &c.hashes[1]
	}
	return hmac.Equal(candidate.digest[:], h.digest[:]) && candidate.secret == h.secret
}

// algorithm begins the text of each hash.
const algorithm = "hmac-sha256"

// String returns the hash as stores keep it: hmac-sha256:<fingerprint of the server secret>:<base 64>.
func (h Hash) String() string {
	return algorithm + ":" + hex.EncodeToString(h.secret[:]) + ":" + base64.RawURLEncoding.EncodeToString(h.digest[:])
}

// IsZero reports whether h is the zero value, which is the hash of no key.
func (h Hash) IsZero() bool { return h == Hash{} }

// errHash never holds the text, which may be a key in the wrong place.
var errHash = errors.New("want hmac-sha256:<8 hex digits>:<43 characters>, as `extauthz keys create` writes it; " +
	"a key itself is never kept")

// MarshalText is String.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText reads what String returns. The error never holds the text.
func (h *Hash) UnmarshalText(text []byte) error {
	parts := strings.Split(string(text), ":")
	if len(parts) != 3 || parts[0] != algorithm || len(parts[1]) != hex.EncodedLen(len(h.secret)) {
		return errHash
	}
	secret, err := hex.DecodeString(parts[1])
	sum, wrong := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || wrong != nil || len(sum) != len(h.digest) {
		return errHash
	}
	*h = Hash{fingerprint(secret), digest(sum)}
	return nil
}

// sealingKey is the HKDF info of the key for seals, which is derived from the server secret. A user of the store can
// read hashes of API keys, and in part choose them. With a key of their own, seals are never equal to such a hash.
const sealingKey = "extauthz: seals of API key records"

// ErrSeal is the error of a text without a seal of the server secret, with a later change, or from another place.
var ErrSeal = errors.New("not signed with API_KEY_SECRET, or changed since")

// Seal returns a MAC and the data. The MAC covers the data and its place: what the data is, and where it belongs.
func (s *Secret) Seal(data []byte, place ...string) []byte {
	mac := Hash{secret: s.peppers[0].fingerprint, digest: s.peppers[0].seal(data, place)}
	return fmt.Appendf(nil, "%s %s", mac, data)
}

// Open returns the data that Seal sealed for this place, and whether the current secret did. The error is ErrSeal.
func (s *Secret) Open(sealed []byte, place ...string) (data []byte, current bool, err error) {
	text, data, found := bytes.Cut(sealed, []byte(" "))
	var mac Hash
	if !found || mac.UnmarshalText(text) != nil {
		return nil, false, ErrSeal
	}
	for i, p := range s.peppers {
		want := p.seal(data, place)
		if p.fingerprint == mac.secret && hmac.Equal(want[:], mac.digest[:]) {
			return data, i == 0, nil
		}
	}
	return nil, false, ErrSeal
}

// seal returns the MAC. The length precedes each part, so that a text cannot move from one part to the next.
func (p *pepper) seal(data []byte, place []string) digest {
	var message []byte
	for _, part := range place {
		message = binary.BigEndian.AppendUint64(message, uint64(len(part)))
		message = append(message, part...)
	}
	return p.sealers.sum(binary.BigEndian.AppendUint64(message, uint64(len(data))), data)
}
