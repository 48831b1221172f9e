package apikey

import (
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// maxKey is the longest text that is looked at: a client may send anything.
const maxKey = 256

// Config says what keys are checked with.
type Config struct {
	// Secret is the server secret. Required.
	Secret *Secret
	// Sources hold the keys. Where two have a key with the same id, that of the first counts. They may be filled later.
	Sources []*Source
	// Now tells the time. Default: time.Now.
	Now func() time.Time
}

// Keys checks API keys: it is an authz.Keys. It is safe for concurrent use. Use New.
type Keys struct{ cfg Config }

// New returns a checker of the keys in some sources.
func New(cfg Config) *Keys {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Keys{cfg}
}

// Check returns the identity of a key, of which nothing must be changed. Its error is authz.ErrInvalid; ErrUnavailable
// instead while a source that may have the key has ended; or, only for the right key, ErrDisabled, ErrNotYet or
// ErrExpired.
//
// A key with a wrong secret takes the same way as one with an unknown id: all sources are looked at, and two hashes compared. A weak
// key is looked up by its hash, which takes the server secret to make, so the time of that says nothing about the keys that exist.
func (k *Keys) Check(key string) (authz.Identity, error) {
	id, strong := publicID(key)
	if !strong && (len(key) > maxKey || CheckWeak(key) != nil) { // a mistyped key of NewKey, or a text that no key can be
		return authz.Identity{}, authz.ErrInvalid
	}
	candidates := k.cfg.Secret.candidates(key)
	none := entry{} // its hashes are those of no key
	found := &none
	now := k.cfg.Now()
	unknown := authz.ErrInvalid
	for _, source := range k.cfg.Sources {
		if source.ended(now) {
			unknown = authz.ErrUnavailable
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
		return authz.Identity{}, unknown
	}
	return found.identity(id, now)
}
