package apikey

import (
	"bytes"
	"crypto/hmac"
	"encoding/binary"
	"errors"
	"fmt"
)

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
