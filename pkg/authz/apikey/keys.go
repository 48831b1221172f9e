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

// Check returns the identity of a key; what Labels, Scopes and Limit lead to is shared and must not be changed. Its error is
// authz.ErrInvalid; authz.ErrUnavailable instead while a source that may have the key has ended; or, only for the right key,
// authz.ErrDisabled, authz.ErrNotYet or authz.ErrExpired. A key with a wrong secret takes the same way as one with an unknown id.
func (k *Keys) Check(key string) (authz.Identity, error) {
	if len(key) > maxKey {
		return authz.Identity{}, authz.ErrInvalid
	}
	if id, ok := publicID(key); ok {
		return k.checkStrong(id, key)
	}
	if CheckWeak(key) != nil { // a mistyped key of NewKey, or a text that no key can be
		return authz.Identity{}, authz.ErrInvalid
	}
	return k.checkWeak(key)
}

// checkStrong checks a key of our form. Its id is looked up in all sources, and two hashes are compared, also for an unknown id.
func (k *Keys) checkStrong(id, key string) (authz.Identity, error) {
	none := entry{} // its hashes are those of no key
	found := &none
	now := k.cfg.Now()
	unknown := authz.ErrInvalid
	for _, source := range k.cfg.Sources {
		if source.ended(now) {
			unknown = authz.ErrUnavailable
			continue
		}
		if e := source.load().find(id); e != nil && !e.weak && found == &none {
			found = e
		}
	}
	previous := previousEntry{}
	if found.previous != nil {
		previous = *found.previous
	}
	candidates := k.cfg.Secret.candidates(key)
	right, old := candidates.match(&found.hash), candidates.match(&previous.hash)
	if !right && (!old || now.UnixMicro() >= previous.validUntil) {
		return authz.Identity{}, unknown
	}
	return found.identity(id, now)
}

// checkWeak checks a text that an operator has chosen. It has no id, so it is looked up by its hash, which takes the server
// secret to make: how long the look-up takes says nothing about the keys that exist.
func (k *Keys) checkWeak(key string) (authz.Identity, error) {
	candidates := k.cfg.Secret.candidates(key)
	var found *entry
	id := ""
	now := k.cfg.Now()
	unknown := authz.ErrInvalid
	for _, source := range k.cfg.Sources {
		if source.ended(now) {
			unknown = authz.ErrUnavailable
			continue
		}
		t := source.load()
		for i := range candidates.count {
			if name, known := t.ids[candidates.hashes[i]]; known && found == nil {
				id, found = name, t.find(name)
			}
		}
	}
	if found == nil || !candidates.match(&found.hash) {
		return authz.Identity{}, unknown
	}
	return found.identity(id, now)
}
