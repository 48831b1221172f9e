package apikey

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
)

// sealingKey is the HKDF info of the key for seals. It is derived from the server secret, so that no hash of an API key, which a
// user of the store can read and in part choose, is ever a seal or the key of one.
const sealingKey = "extauthz: seals of API key records"

// ErrSeal is the error of a text that has no seal of the server secret, or was changed since, or belongs to another place.
var ErrSeal = errors.New("not signed with API_KEY_SECRET, or changed since")

// Seal returns data behind a MAC over it and its place, which says what it is and where it belongs.
func (s *Secret) Seal(data []byte, place ...string) []byte {
	mac := Hash{made: s.peppers[0].fingerprint, digest: s.peppers[0].seal(data, place)}
	return fmt.Appendf(nil, "%s %s", mac, data)
}

// Open returns what Seal has sealed for this place, and whether with the current secret. The error is ErrSeal.
func (s *Secret) Open(sealed []byte, place ...string) (data []byte, current bool, err error) {
	text, data, found := bytes.Cut(sealed, []byte(" "))
	var mac Hash
	if !found || mac.UnmarshalText(text) != nil {
		return nil, false, ErrSeal
	}
	for i, p := range s.peppers {
		want := p.seal(data, place)
		if p.fingerprint == mac.made && hmac.Equal(want[:], mac.digest[:]) {
			return data, i == 0, nil
		}
	}
	return nil, false, ErrSeal
}

// seal is the MAC. Each part goes in behind its length, so that a text cannot move from one part to the next.
func (p *pepper) seal(data []byte, place []string) digest {
	var message []byte
	for _, part := range place {
		message = binary.BigEndian.AppendUint64(message, uint64(len(part)))
		message = append(message, part...)
	}
	return p.sealers.sum(binary.BigEndian.AppendUint64(message, uint64(len(data))), data)
}
