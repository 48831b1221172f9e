package apikey

import (
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// maxKey is the longest text that Check hashes. A client may send a longer one.
const maxKey = 256

// Config are the settings of Keys.
type Config struct {
	// Secret is the server secret. Required.
	Secret *Secret
	// Sources hold the keys. If two have a key with the same id, the first source counts. They may be filled later.
	Sources []*Source
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// Keys checks API keys. It is a credential.Checker. It is safe for concurrent use. Use New.
type Keys struct{ cfg Config }

// New returns a checker of the keys in some sources.
func New(cfg Config) *Keys {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keys{cfg}
}

// Check returns the identity of a key. The caller must not change it. The error is credential.ErrInvalid, or
// ErrUnavailable if the key is unknown and a source has ended. Only the right key gets ErrDisabled, ErrNotYet or
// ErrExpired.
//
// A wrong secret takes the same work as an unknown id: Check looks into all sources and compares two hashes. So the
// time of an answer does not show which ids exist. A weak key is found by its hash, which nothing outside the service
// can compute, so the time of that lookup shows nothing either.
func (k *Keys) Check(key string) (credential.Identity, error) {
	id, strong := publicID(key)
	if !strong && (len(key) > maxKey || CheckWeak(key) != nil) { // a typo, or a text that no key can be
		return credential.Identity{}, credential.ErrInvalid
	}
	candidates := k.cfg.Secret.candidates(key)
	none := entry{} // no key has its hashes
	found := &none
	now := k.cfg.Now()
	unknown := credential.ErrInvalid
	for _, source := range k.cfg.Sources {
		if source.ended(now) {
			unknown = credential.ErrUnavailable
			continue
		}
		t, name := source.load(), id
		if !strong {
			name = t.weakID(&candidates)
		}
		if e := t.find(name); e != nil && e.weak != strong && found == &none {
			id, found = name, e
		}
	}
	previous := Previous{}
	if found.previous != nil {
		previous = *found.previous
	}
	right, old := candidates.match(&found.hash), candidates.match(&previous.Hash)
	if !right && (!old || !now.Before(previous.ValidUntil)) {
		return credential.Identity{}, unknown
	}
	return found.identity(id, now)
}
