package ratelimit

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
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
	// Rules decide in the place of those in force, when the descriptors were made for them. Default: those in force.
	Rules *Rules
}

// Config are the settings of a limiter.
type Config struct {
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

// Limiter answers queries by the rules in force. It is safe for concurrent use.
type Limiter struct {
	cfg    Config
	rules  atomic.Pointer[Rules]
	totals Totals
}

// New returns a limiter without rules, which lets everything pass.
func New(cfg Config) *Limiter {
	l := &Limiter{cfg: cfg}
	l.rules.Store(NewRules(nil, RulesOptions{}))
	return l
}

// SetRules puts rules in force for the requests that come from now on. Counters of rules that were there before go on.
// It is for one goroutine at a time.
func (l *Limiter) SetRules(r *Rules) {
	r.inherit(l.rules.Load())
	l.rules.Store(r)
}

// Rules returns the rules in force.
func (l *Limiter) Rules() *Rules { return l.rules.Load() }

// Totals returns the counters that belong to no rule.
func (l *Limiter) Totals() *Totals { return &l.totals }

// Errors of a query that only a broken configuration or caller can send.
var (
	ErrNoDomain      = errors.New("rate limit domain must not be empty")
	ErrNoDescriptors = errors.New("rate limit descriptor list must not be empty")
)

// Decide answers a query. Its error is ErrNoDomain, ErrNoDescriptors, an *OverrideError, or, only when the limiter is strict,
// the error of the store. Nothing else in a query is an error: Envoy lets a request pass when the call fails, so whatever its
// clients can choose has to be decided.
func (l *Limiter) Decide(ctx context.Context, q Query) (Result, error) {
	if q.Domain == "" {
		return Result{}, ErrNoDomain
	}
	if len(q.Descriptors) == 0 {
		return Result{}, ErrNoDescriptors
	}
	p := plan{limiter: l, rules: cmp.Or(q.Rules, l.rules.Load()), query: q, matches: make([]match, len(q.Descriptors))}
	if !p.rules.HasDomain(q.Domain) {
		l.totals.UnknownDomain.Add(1)
	} else if err := p.match(); err != nil {
		return Result{}, err
	}
	request := p.request()
	answer := FromStore
	if len(request.Takes) > 0 {
		l.cfg.Store.Take(ctx, []*bucket.Request{request})
		if request.Err != nil {
			if l.cfg.Strict {
				l.countStoreError(request.Err, 0)
				return Result{}, request.Err
			}
			answer = p.undecided(ctx, request)
		}
	} else {
		request.Allowed = true
	}
	return p.result(request, answer), nil
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
