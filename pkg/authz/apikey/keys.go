package apikey

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Credential accepts a key of the key file or of Redis. It is a credential.Kind, and Keys is its Checker.
type Credential struct {
	credential.Source `yaml:",inline"`
}

// Name is the key of API keys in policies.
const Name = "api_key"

// Traits returns those of API keys.
func (*Credential) Traits() credential.Traits {
	return credential.Traits{Name: Name, Scheme: "ApiKey", Secret: true, Gives: []string{"scope", "label"}}
}

// String returns the place.
func (c *Credential) String() string { return c.Place().String() }

// Check reports a key that has no place, or one where it cannot be.
func (c *Credential) Check(m *ratelimit.Mistakes, path string) {
	if c.Place().In == credential.Nowhere {
		m.At(path, credential.SourcePaths(path)...).Lacking().Fail(
			"`api_key` without `header`, `scheme`, `query` or `cookie`", "add one of them")
	}
	c.Source.Check(m, path)
}

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

// Identify returns what Check returns.
func (k *Keys) Identify(_ context.Context, _ credential.Kind, key string) (credential.Identity, error) {
	return k.Check(key)
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

// LimitOf returns the limit of the key with an id, or that of the first key of an owner that has one; nil for none.
// Disabled keys of the owner do not count.
func (k *Keys) LimitOf(owner, id string) *ratelimit.LimitSpec {
	for _, source := range k.cfg.Sources {
		t := source.load()
		if e := t.find(id); e != nil {
			return e.limit
		}
		if limit := t.limits()[owner]; id == "" && limit != nil {
			return limit
		}
	}
	return nil
}

// Named returns the identity of the key with an id. ok is false for an unknown one, and for one that is not valid now.
func (k *Keys) Named(id string) (identity credential.Identity, ok bool) {
	for _, source := range k.cfg.Sources {
		if e := source.load().find(id); e != nil {
			identity, err := e.identity(id, k.cfg.Now())
			return identity, err == nil
		}
	}
	return identity, false
}

// soon is the time before its end in which a key counts as expiring.
const soon = 7 * 24 * time.Hour

// Stats counts keys.
type Stats struct {
	// Keys is the number of all keys. A key may be in several of the other counts.
	Keys int
	// Weak is how many keys the operator chose.
	Weak int
	// Expiring is how many keys are valid now and end within 7 days.
	Expiring int
	// Foreign is how many keys have a hash of an unknown server secret, so that they never match. Outdated is how many
	// have one of the previous server secret, or a previous key in its grace that has one.
	Foreign, Outdated int
}

// Stats counts the keys of all sources.
func (k *Keys) Stats() (s Stats) {
	now, peppers := k.cfg.Now().UnixMicro(), k.cfg.Secret.peppers
	outdated := func(h *Hash) bool { return len(peppers) > 1 && h.secret == peppers[1].fingerprint }
	for _, source := range k.cfg.Sources {
		entries := source.load().entries
		s.Keys += len(entries)
		for i := range entries {
			e := &entries[i]
			if e.weak {
				s.Weak++
			}
			if e.expires != 0 && e.expires-now <= soon.Microseconds() && e.valid(now) == nil {
				s.Expiring++
			}
			old, p := outdated(&e.hash), e.previous
			if !old && e.hash.secret != peppers[0].fingerprint {
				s.Foreign++
			}
			if old || p != nil && now < p.ValidUntil.UnixMicro() && outdated(&p.Hash) {
				s.Outdated++
			}
		}
	}
	return s
}
