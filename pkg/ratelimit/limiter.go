package ratelimit

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Query is the question of a transport: may these descriptors of a domain pass?
type Query struct {
	Domain      string
	Descriptors []descriptors.Descriptor
	// Hits is the cost of descriptors that do not state their own; 0 means 1.
	Hits uint64
	// Beforehand means that hits are prices, not settlements. Denied hits are then charged only if a rule counts denials.
	Beforehand bool
	// Refused means that the request is already refused and only counted. It has buckets of its own at the same rules, so
	// that refused requests never consume the limits of other requests.
	Refused bool
	// CredentialLimit is the limit of the caller's credential. It replaces the limits with an Override. nil for none.
	CredentialLimit *LimitSpec
	// MaxHold is how long the answer can be held for a MaxDelay, in µs. A request that must wait longer is denied.
	MaxHold int64
	// Rules decide instead of the active rules, for descriptors that were made for them. Default: the active rules.
	Rules *Rules
	// Dry asks for the decision that the query would have now, and changes nothing: see Limiter.Dry.
	Dry bool
}

// Config are the settings of a limiter.
type Config struct {
	// Rules returns the active rules, nil if there have been none yet. Required, unless each query names its rules.
	Rules func() *Rules
	// Store decides requests. Required.
	Store Store
	// Fallback decides what Store cannot, for rules with the policy Local. Required if Store can fail.
	Fallback Store
	// MaxHeld is how many requests may wait in one bucket for a MaxDelay. Default: as many as leak within the MaxDelay.
	MaxHeld int64
	// MaxHeldPerRule is how many requests may have Places in one rule. Default: any number.
	MaxHeldPerRule int64
	// NearLimitRatio (NEAR_LIMIT_RATIO) is the share of a limit above which its hits count as near it. Default: 0.8.
	NearLimitRatio float32
	// Undecided receives the reason each time that Store could not decide a request. It must return at once. Optional.
	Undecided func(err error)
	// Undone receives how many holds of a domain were removed because their call has ended before its answer, and the
	// error of the store, if there is one. It must return at once. Optional.
	Undone func(domain string, holds int, err error)
	// Missed receives a descriptor that no rule matches, and a domain without rules, then without entries. Each domain,
	// and each descriptor with other keys, is reported at most once an hour. It must return at once. Optional.
	Missed func(rules *Rules, domain string, entries []descriptors.Entry)
	// OwnLimit returns the limit of the credential that a descriptor names, nil for none. The limiter asks it for peeks
	// that do not come from the credential's own request, so that they show the active limit. Optional.
	OwnLimit func(domain string, entries []descriptors.Entry) *LimitSpec
	// Shadow allows every request after it was decided and counted (SHADOW_MODE).
	Shadow bool
	// Quota makes all rules quotas (QUOTA_MODE).
	Quota bool
	// Strict does as envoyproxy/ratelimit where this service differs on purpose (COMPATIBILITY=strict). Denied hits are
	// charged unless a rule sets otherwise, a peek passes if nothing is left, each descriptor is decided by itself, and
	// an undecided request is an error.
	Strict bool
	// StopWhenOver charges only the limits that a request exceeds, if there are any, in place of all its limits
	// (STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT). Only a strict limiter reads it; otherwise denials charge nothing anyway.
	StopWhenOver bool
	// LocalCache is the size in bytes of a cache of buckets over their limits, which are denied without the store until
	// their windows end (LOCAL_CACHE_SIZE_IN_BYTES). Only a strict limiter reads it. 0 for none.
	LocalCache int
	// Clock returns the time of the local cache, in µs. Default: the monotonic clock.
	Clock func() int64
	// Now returns the time of a denial, for Result.DeniedSince. Default: Rounds.At.
	Now func() time.Time
}

// Limiter decides queries by the active rules. It is safe for concurrent use.
type Limiter struct {
	cfg     Config
	totals  Totals
	misses  *misses
	sketch  *sketch
	cache   *localCache // nil for none
	waiting sync.Pool   // of *waiting, for DecideAll
	undos   atomic.Int64
	dry     bool     // see Dry
	forDry  *Limiter // decides Dry queries
}

// New returns a limiter.
func New(cfg Config) *Limiter {
	cfg.NearLimitRatio = cmp.Or(cfg.NearLimitRatio, 0.8)
	l, dry := &Limiter{cfg: cfg, misses: newMisses(), cache: newLocalCache(&cfg)}, &Limiter{cfg: cfg, dry: true}
	l.sketch = newSketch(cfg.Now)
	dry.cache, dry.sketch, dry.forDry, l.forDry = l.cache, l.sketch, dry, dry
	for _, limiter := range []*Limiter{l, dry} {
		limiter.waiting.New = func() any { return &waiting{wait: newWait()} }
	}
	return l
}

// Dry returns a limiter that decides as l would now, but charges no bucket, takes no place, counts and reports nothing.
func (l *Limiter) Dry() *Limiter { return l.forDry }

// Totals returns the counters that belong to no rule.
func (l *Limiter) Totals() *Totals { return &l.totals }

// QueryError is the mistake in a query that only a broken configuration can send, never a client.
type QueryError string

// The errors of a query without a domain and of one without descriptors.
const (
	ErrNoDomain      QueryError = "rate limit domain must not be empty"
	ErrNoDescriptors QueryError = "rate limit descriptor list must not be empty"
)

func (e QueryError) Error() string { return string(e) }

// ErrNoRules is the error of each query before there are rules. It has the text of envoyproxy/ratelimit.
var ErrNoRules = errors.New("no rate limit configuration loaded")

// ErrUnanswered is the error of a request whose store has panicked before it answered. Its buckets may be charged.
var ErrUnanswered = errors.New("internal error")

func (l *Limiter) countStoreError(err error, policy StoreErrorPolicy) {
	if l.dry {
		return
	}
	l.totals.StoreErrors[policy].Add(1)
	if errors.Is(err, ErrOutcomeUnknown) {
		l.totals.UnknownOutcomes.Add(1)
	}
	if l.cfg.Undecided != nil {
		l.cfg.Undecided(err)
	}
}
