package rules

import (
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Active is a compiled Set. All of it takes effect at once.
type Active struct {
	Set Set
	// Limits are the compiled domains. Policies are the compiled policies, which limit their requests by Limits.
	Limits   *ratelimit.Rules
	Policies *authz.Policies
}

// Options are the settings by which sets are compiled.
type Options struct {
	Limits ratelimit.RulesOptions
	// Headers are the rate limit headers for clients. Policies remove them from requests.
	Headers reply.Headers
}

// Live holds the active rules. Everything that decides a request reads them from Live. Use NewLive. It is safe for
// concurrent use, but only one goroutine at a time may call Activate.
type Live struct {
	options Options
	active  atomic.Pointer[Active]
}

// NewLive returns a Live without rules: no limit applies, and every Check is refused.
func NewLive(o Options) *Live {
	l := &Live{options: o}
	l.active.Store(l.compile(Set{}, nil))
	return l
}

// Activate compiles a set and makes it active. It calls prepare, if not nil, before a request can be decided by the
// set. Rules that were active before keep their counters.
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
