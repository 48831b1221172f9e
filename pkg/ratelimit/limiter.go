package ratelimit

import (
	"context"
	"errors"
	"sync"

	"github.com/extauthz/extauthz/pkg/descriptors"
)

// Query is what a transport asks: may these descriptors of a domain pass?
type Query struct {
	Domain      string
	Descriptors []descriptors.Descriptor
	// Hits is the cost of descriptors that do not state their own; 0 means 1.
	Hits uint64
	// Beforehand says that the hits of descriptors are costs known beforehand and no settlement of earlier ones: when they are
	// denied they are not charged, unless a rule counts denials.
	Beforehand bool
	// Refused says that the request is refused already and is only counted. It has buckets of its own at the same rules, so that
	// refused requests never use up what other requests have left.
	Refused bool
	// Own is the limit that the caller's credential brings; it takes the place of those that allow it. nil for none.
	Own *LimitSpec
	// MaxHold is how long the answer can be held, in µs, for limits with a MaxDelay; a request that would have to wait longer is
	// denied.
	MaxHold int64
	// Rules decide in place of the active ones if the descriptors were made for them. Default: the active rules.
	Rules *Rules
}

// Config are the settings of a limiter.
type Config struct {
	// Rules returns the active rules. Required, unless each query names its rules.
	Rules func() *Rules
	// Store decides. Required.
	Store Store
	// Fallback decides, for rules with the policy Local, what Store can not. Required when Store can fail.
	Fallback Store
	// MaxHeld is how many requests may wait in one bucket at once for a MaxDelay. Default: as many as leave it within the MaxDelay.
	MaxHeld int64
	// Undecided is told why Store could not decide a request, and must return at once. Default: nobody is.
	Undecided func(err error)
	// Shadow lets every request pass, after it was decided and counted (SHADOW_MODE).
	Shadow bool
	// Quota makes all rules quotas (QUOTA_MODE).
	Quota bool
	// Strict does as envoyproxy/ratelimit where this service differs on purpose: denied hits are charged unless a rule says
	// otherwise, a peek passes when nothing is left, and an undecided request is an error (COMPATIBILITY=strict).
	Strict bool
}

// Limiter answers queries by the active rules. It is safe for concurrent use.
type Limiter struct {
	cfg     Config
	totals  Totals
	batches sync.Pool // of *batch
}

// New returns a limiter.
func New(cfg Config) *Limiter { return &Limiter{cfg: cfg} }

// Totals returns the counters that belong to no rule.
func (l *Limiter) Totals() *Totals { return &l.totals }

// QueryError says what is wrong with a query that only a broken configuration can send, and no client.
type QueryError string

// The errors of a query without a domain and of one without descriptors.
const (
	ErrNoDomain      QueryError = "rate limit domain must not be empty"
	ErrNoDescriptors QueryError = "rate limit descriptor list must not be empty"
)

func (e QueryError) Error() string { return string(e) }

// DecideAll answers queries, each by itself, with one call of the store. It writes the result of queries[i] to results[i].
func (l *Limiter) DecideAll(ctx context.Context, queries []Query, results []Result) {
	b, ok := l.batches.Get().(*batch)
	if !ok {
		b = new(batch)
	}
	b.plans, b.requests, b.outcomes = b.plans[:0], b.requests[:0], b.outcomes[:0]
	for i := range queries {
		b.add(l, &queries[i])
	}
	b.take(ctx, l)
	for i := range b.plans {
		results[i] = b.result(&b.plans[i])
	}
	l.batches.Put(b)
}

func (l *Limiter) countStoreError(err error, policy StoreErrorPolicy) {
	l.totals.StoreErrors[policy].Add(1)
	if errors.Is(err, ErrOutcomeUnknown) {
		l.totals.UnknownOutcomes.Add(1)
	}
	if l.cfg.Undecided != nil {
		l.cfg.Undecided(err)
	}
}
