package jwt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/authz/credential"
)

// maxToken is the longest token in bytes. Most upstreams accept 8 KiB for one header, Envoy 60 KiB for all.
const maxToken = 8 << 10

// Config are the settings of a Verifier or an Introspector. The zero value is ready to use.
type Config struct {
	// Now is the clock for tokens and keys; default time.Now. It must be safe for concurrent use.
	Now func() time.Time
	// Transport fetches keys, and asks about tokens. The default trusts the system's roots and uses the proxy of the
	// environment.
	Transport http.RoundTripper
	// Timeout bounds one fetch or question, body included. Default 5 s.
	Timeout time.Duration
	// OnReading, if set, is called when the result of a reading differs from the previous one: other keys, another error,
	// or no error after one. Each source calls it from its own goroutine. Requests for its keys wait for the call.
	OnReading func(Reading)
	// OnFailure, if set, is called for each call of an Introspector without a usable answer, from many goroutines.
	OnFailure func(url string, err error)
}

// Verifier checks tokens. It is a credential.Slow. Use New. It is safe for concurrent use.
type Verifier struct {
	cfg    Config
	client *http.Client
	cache  *cache
	policy atomic.Pointer[policy]

	running sync.WaitGroup
	mu      sync.Mutex // held while the policy changes
	closed  bool
}

// withDefaults returns the settings without zero values, except for Transport.
func (cfg Config) withDefaults() Config {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.OnReading == nil {
		cfg.OnReading = func(Reading) {}
	}
	if cfg.OnFailure == nil {
		cfg.OnFailure = func(string, error) {}
	}
	cfg.Timeout = cmp.Or(max(0, cfg.Timeout), 5*time.Second)
	return cfg
}

// New returns a verifier without issuers, which refuses every token. It has no goroutines before SetIssuers.
func New(cfg Config) *Verifier {
	cfg = cfg.withDefaults()
	v := &Verifier{cfg: cfg, client: newClient(cfg, 0), cache: newCache(cacheSize)}
	v.policy.Store(&policy{})
	return v
}

// Close ends all readings of keys. Identify still uses the keys that were read. Close may be called more than once.
func (v *Verifier) Close() {
	v.mu.Lock()
	v.closed = true
	for _, s := range v.policy.Load().sources {
		s.stop()
	}
	v.mu.Unlock()
	v.running.Wait()
}

// Refresh reads the keys of all issuers now, as a clock that leaps needs it, and returns when that has ended.
func (v *Verifier) Refresh() {
	for _, s := range v.policy.Load().sources {
		if done := s.start(0); done != nil {
			<-done
		}
	}
}

// Identify returns the identity of a token. kind is one of SetIssuers. A verified token is cached until it expires, or
// its issuer or the issuer's keys change.
//
// The error is a *credential.Error. It wraps credential.ErrInvalid, ErrExpired, ErrNotYet or ErrUnavailable. If the
// service lacks the token's key, Identify has the keys read again, if the last reading is long enough ago, and waits
// until ctx is nearly done. ErrUnavailable means that there are still no keys. Only a token with a right signature gets
// ErrExpired or ErrNotYet.
//
// Callers share the slices and maps of the Identity and must not change them.
func (v *Verifier) Identify(ctx context.Context, kind credential.Kind, token string) (credential.Identity, error) {
	if len(token) > maxToken {
		return credential.Identity{}, credential.Invalid("oversized")
	}
	id, identity, known := v.lookUp(kind, token)
	switch {
	case known:
		return identity, nil
	case id.by == nil:
		return credential.Identity{}, &credential.Error{Cause: "unknown_issuer", Kind: credential.ErrUnavailable}
	}
	return v.verify(ctx, token, id)
}

// Known returns the identity of a verified token, as Identify does, if it is cached.
func (v *Verifier) Known(kind credential.Kind, token string) (identity credential.Identity, known bool) {
	if len(token) <= maxToken {
		_, identity, known = v.lookUp(kind, token)
	}
	return identity, known
}

// lookUp returns the cached identity of a token. id.by is nil if SetIssuers has not set the issuer.
func (v *Verifier) lookUp(kind credential.Kind, token string) (id cacheKey, identity credential.Identity, known bool) {
	if id.by = v.validator(kind); id.by == nil {
		return id, identity, false
	}
	var onStack [1 << 10]byte // most tokens fit, so this allocates nothing
	id.token = sha256.Sum256(append(onStack[:0], token...))
	now := v.cfg.Now()
	if keys := id.by.source.keys(now); keys != nil {
		identity, known = v.cache.get(id, keys.version, now)
	}
	return id, identity, known
}

// validator returns the settings for the tokens of an issuer, nil if SetIssuers has not set it.
func (v *Verifier) validator(kind credential.Kind) *validator {
	issuer, _ := kind.(*Credential)
	p := v.policy.Load()
	return cmp.Or(p.validators[issuer], p.before[issuer])
}

// verify checks a token that is not in the cache.
func (v *Verifier) verify(ctx context.Context, token string, id cacheKey) (credential.Identity, error) {
	val := id.by
	t, err := parse(token, val.issuer.Algorithms)
	if err != nil {
		return credential.Identity{}, err
	}
	// Wrong claims need no key to be refused. So tokens of another issuer cause no fetch from this one.
	identity, expires, untimely := val.judge(t.claims, v.cfg.Now())
	if untimely != nil && errors.Is(untimely, credential.ErrInvalid) {
		return credential.Identity{}, untimely
	}
	keys := val.source.keys(v.cfg.Now())
	candidates := keys.find(t.header)
	if len(candidates) == 0 && untimely == nil {
		val.source.refresh(ctx)
		keys = val.source.keys(v.cfg.Now())
		candidates = keys.find(t.header)
	}
	if keys == nil {
		return credential.Identity{}, &credential.Error{Cause: "no_keys", Kind: credential.ErrUnavailable}
	}
	if len(candidates) == 0 {
		return credential.Identity{}, credential.Invalid("unknown_key")
	}
	key, ok := t.signedBy(candidates)
	if !ok {
		return credential.Identity{}, credential.Invalid("signature")
	}
	if untimely != nil {
		return credential.Identity{}, untimely
	}
	identity.KeyID = key.id
	v.cache.put(id, cached{identity: identity, keys: keys.version, expires: expires, weight: 1 + len(token)>>10})
	return identity, nil
}

// policy holds the active issuers. It does not change; SetIssuers replaces it.
type policy struct {
	// before are the validators of the previous issuers, for requests that began before the issuers changed.
	validators, before map[*Credential]*validator
	sources            map[string]*source
}

// validator checks the tokens of one issuer.
type validator struct {
	issuer *Credential
	source *source
}

// SetIssuers makes the issuers of policies the active ones. Call it with each new set of policies before its first use.
// Keys of a new file, URL or issuer are read at once, in the background. Keys without an issuer are not read again. An
// issuer that equals a previous one keeps its keys and verified tokens. After Close, SetIssuers does nothing.
func (v *Verifier) SetIssuers(issuers []*Credential) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return
	}
	old := v.policy.Load()
	next := &policy{
		validators: make(map[*Credential]*validator, len(issuers)), before: old.validators, sources: map[string]*source{},
	}
	for _, issuer := range issuers {
		val := old.equal(issuer)
		if val == nil {
			val = &validator{issuer, v.source(issuer, old, next)}
		}
		next.validators[issuer] = val
		next.sources[val.source.name] = val.source
	}
	v.policy.Store(next)
	for name, s := range old.sources {
		if next.sources[name] == nil {
			s.stop()
		}
	}
}

// equal returns the validator of an issuer with equal settings, so that its verified tokens stay cached; nil for none.
func (p *policy) equal(issuer *Credential) *validator {
	for known, v := range p.validators {
		if reflect.DeepEqual(known, issuer) {
			return v
		}
	}
	return nil
}

// source returns the source of an issuer's keys: the existing one, or a new one that begins to read.
func (v *Verifier) source(issuer *Credential, old, next *policy) *source {
	var from origin
	switch {
	case issuer.JWKSFile != nil:
		from = file(*issuer.JWKSFile)
	case issuer.JWKSURL != nil:
		from = endpoint(*issuer.JWKSURL, v.client)
	default:
		from = discovery(text(issuer.Issuer), v.client)
	}
	if known := cmp.Or(next.sources[from.name], old.sources[from.name]); known != nil {
		return known
	}
	s := &source{origin: from, cfg: v.cfg, running: &v.running}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.start(0) // so that requests wait for the keys
	return s
}
