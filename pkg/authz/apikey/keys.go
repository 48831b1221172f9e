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

// Check returns whose key it is; what Labels, Scopes and Limit lead to is shared and must not be changed. Its error is
// authz.ErrInvalid, and only for who has the right key authz.ErrDisabled, authz.ErrNotYet or authz.ErrExpired. A key with a
// wrong secret takes the same way as one whose id nobody has.
func (k *Keys) Check(key string) (authz.Identity, error) {
	if len(key) > maxKey {
		return authz.Identity{}, authz.ErrInvalid
	}
	if id, ok := publicID(key); ok {
		return k.checkStrong(id, key)
	}
	if CheckWeak(key) != nil { // a typing mistake in a key of ours, or nothing that could be anybody's
		return authz.Identity{}, authz.ErrInvalid
	}
	return k.checkWeak(key)
}

// checkStrong checks a key of our form. Its id is looked up in all sources, and two hashes are compared, whoever has it.
func (k *Keys) checkStrong(id, key string) (authz.Identity, error) {
	nobody := entry{} // its hashes are those of no key
	found := &nobody
	for _, source := range k.cfg.Sources {
		if e := source.load().strong(id); e != nil && found == &nobody {
			found = e
		}
	}
	now := k.cfg.Now()
	previous := previousEntry{}
	if found.previous != nil {
		previous = *found.previous
	}
	candidates := k.cfg.Secret.candidates(key)
	right, old := candidates.match(&found.hash), candidates.match(&previous.hash)
	if !right && (!old || now.UnixMicro() >= previous.validUntil) {
		return authz.Identity{}, authz.ErrInvalid
	}
	return found.identity(id, now)
}

// checkWeak checks a text of somebody's choice. It has no id, so it is found by its hash, which nobody can make without the
// server secret: how long the look-up takes tells nothing about the keys that there are.
func (k *Keys) checkWeak(key string) (authz.Identity, error) {
	candidates := k.cfg.Secret.candidates(key)
	var found *weakEntry
	for _, source := range k.cfg.Sources {
		t := source.load()
		for i := range candidates.count {
			if e := t.weak[candidates.hashes[i]]; e != nil && found == nil {
				found = e
			}
		}
	}
	if found == nil || !candidates.match(&found.hash) {
		return authz.Identity{}, authz.ErrInvalid
	}
	return found.identity(found.id, k.cfg.Now())
}
