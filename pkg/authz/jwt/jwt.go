// Package jwt checks signed tokens (JWT, RFC 7519) that requests carry as credentials: signature, issuer, audience and times,
// with the issuer's keys from a file or a URL, which it follows. It keeps to the best current practices of RFC 8725.
package jwt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
)

// maxToken is the longest token that is looked at. Most upstreams take 8 KiB for a header, Envoy 60 KiB for all.
const maxToken = 8 << 10

// Config are the settings of a Verifier. The zero value is ready to use.
type Config struct {
	// Now is the clock that tokens and keys are judged by; default time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Transport fetches keys. Default: one that trusts the system's roots and uses the proxy of the environment.
	Transport http.RoundTripper
	// Timeout bounds one fetch of keys, body included. Default 5 s.
	Timeout time.Duration
	// MaxStale is for how long keys serve that cannot be read again. Default 24 h.
	MaxStale time.Duration
	// CacheSize is how many verified tokens are remembered; one longer than 1 KiB counts as several. Default 65,536.
	CacheSize int
	// OnReading, if set, is called when the reading of keys went otherwise than the one before: other keys, an error, another error, or
	// none any more. It is called from several goroutines, one for each source at a time, and requests for these keys wait for it.
	OnReading func(Reading)
}

// Verifier checks tokens; it implements authz.Tokens. Use New. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	client *http.Client
	cache  *cache
	policy atomic.Pointer[policy]

	running sync.WaitGroup
	mu      sync.Mutex // held while the policy changes
	closed  bool
}

// New returns a verifier that knows no issuers yet, and refuses every token. It has no goroutines before SetIssuers.
func New(cfg Config) *Verifier {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnReading == nil {
		cfg.OnReading = func(Reading) {}
	}
	cfg.Timeout = cmp.Or(max(0, cfg.Timeout), 5*time.Second)
	cfg.MaxStale = cmp.Or(max(0, cfg.MaxStale), 24*time.Hour)
	cfg.CacheSize = cmp.Or(max(0, cfg.CacheSize), 1<<16)
	v := &Verifier{cfg: cfg, client: newClient(cfg), cache: newCache(cfg.CacheSize)}
	v.policy.Store(&policy{})
	return v
}

// Close ends all readings of keys. Check still answers from what it knows. Close may be called more than once.
func (v *Verifier) Close() {
	v.mu.Lock()
	v.closed = true
	for _, s := range v.policy.Load().sources {
		s.stop()
	}
	v.mu.Unlock()
	v.running.Wait()
}

// Check returns whose token it is; issuer is one that was given to SetIssuers. A token that has been checked before is known until
// it expires, the issuer's keys change or the issuer does.
//
// The error is an *Error, which wraps authz.ErrInvalid, ErrExpired or ErrNotYet; or ErrUnavailable when there are no keys, and
// none came before ctx was nearly done. For a key that is not known while others are, Check waits in the same way for the keys
// to be read again, if it is time for that. Only a token whose signature is right is called expired or not valid yet.
//
// Callers share the slices and maps of the Identity; nobody may change them.
func (v *Verifier) Check(ctx context.Context, issuer *authz.Issuer, token string) (authz.Identity, error) {
	if len(token) > maxToken {
		return authz.Identity{}, invalid("oversized")
	}
	p := v.policy.Load()
	val := p.validators[issuer]
	if val == nil {
		val = p.before[issuer]
	}
	if val == nil {
		return authz.Identity{}, &Error{Reason: "unknown_issuer", Kind: authz.ErrUnavailable}
	}
	now := v.cfg.Now()
	id := cacheKey{by: val, token: digest(token)}
	if keys := val.source.keys(now); keys != nil {
		if identity, ok := v.cache.get(id, keys.version, now); ok {
			return identity, nil
		}
	}
	return v.verify(ctx, val, token, id)
}

// digest is what the cache knows a token by.
func digest(token string) [sha256.Size]byte {
	var onStack [1 << 10]byte // where most tokens have room, so that this allocates nothing
	return sha256.Sum256(append(onStack[:0], token...))
}

// verify checks a token that the cache does not know.
func (v *Verifier) verify(ctx context.Context, val *validator, token string, id cacheKey) (authz.Identity, error) {
	t, err := parse(token, val.issuer.Algorithms)
	if err != nil {
		return authz.Identity{}, err
	}
	// What is wrong with the claims whoever signed them needs no key: tokens of another issuer cause no fetch at this one.
	identity, expires, untimely := val.judge(t.claims, v.cfg.Now())
	if untimely != nil && errors.Is(untimely, authz.ErrInvalid) {
		return authz.Identity{}, untimely
	}
	keys := val.source.keys(v.cfg.Now())
	candidates := keys.find(t.header)
	if len(candidates) == 0 && untimely == nil {
		val.source.refresh(ctx)
		keys = val.source.keys(v.cfg.Now())
		candidates = keys.find(t.header)
	}
	if keys == nil {
		return authz.Identity{}, &Error{Reason: "no_keys", Kind: authz.ErrUnavailable}
	}
	if len(candidates) == 0 {
		return authz.Identity{}, invalid("unknown_key")
	}
	key, ok := t.signedBy(candidates)
	if !ok {
		return authz.Identity{}, invalid("signature")
	}
	if untimely != nil {
		return authz.Identity{}, untimely
	}
	identity.KeyID = key.id
	v.cache.put(id, cached{identity: identity, keys: keys.version, expires: expires, weight: 1 + len(token)>>10})
	return identity, nil
}
