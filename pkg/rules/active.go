package rules

import (
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Active is a Set as requests are decided by it. It is compiled as a whole, and takes effect as a whole.
type Active struct {
	Set Set
	// Limits are the rules of its domains, and Policies its policies, which limit their requests by these rules.
	Limits   *ratelimit.Rules
	Policies *authz.Policies
}

// Options are the settings that give rules their meaning.
type Options struct {
	Limits ratelimit.RulesOptions
	// Headers are the rate limit headers for clients, which policies remove from requests.
	Headers reply.Headers
}

// Live has the active rules: everything that decides a request reads them here. Use NewLive. It is safe for concurrent
// use, but Activate is for one goroutine at a time.
type Live struct {
	options Options
	active  atomic.Pointer[Active]
}

// NewLive returns a Live whose active rules are none: no limit applies, and every Check is refused.
func NewLive(o Options) *Live {
	l := &Live{options: o}
	l.active.Store(l.compile(Set{}, nil))
	return l
}

// Activate compiles a set and makes it the active one. It calls prepare, if that is not nil, before a request can be
// decided by the set. Counters of rules that were active before go on.
func (l *Live) Activate(set Set, prepare func(*Active)) {
	a := l.compile(set, l.Limits())
	if prepare != nil {
		prepare(a)
	}
	l.active.Store(a)
}

func (l *Live) compile(set Set, before *ratelimit.Rules) *Active {
	o := l.options.Limits
	o.Before = before
	limits := ratelimit.NewRules(set.Domains, o)
	return &Active{Set: set, Limits: limits, Policies: authz.NewPolicies(set.Policies, limits, l.options.Headers)}
}

// Active returns the active rules.
func (l *Live) Active() *Active { return l.active.Load() }

// Limits returns the active rate limits.
func (l *Live) Limits() *ratelimit.Rules { return l.active.Load().Limits }

// Policies returns the active policies.
func (l *Live) Policies() *authz.Policies { return l.active.Load().Policies }
