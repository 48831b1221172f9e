package rules

import (
	"context"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/networks"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Set is all rules of a source, of one generation. It is not changed after it was made.
type Set struct {
	// Domains are the rate limits, one element for each domain, in the order of the source.
	Domains []ratelimit.Domain
	// Policies are the policies of ext_authz by domain.
	Policies map[string]*authz.Policy
	// Networks are the lists of prefixes of all domains, by name.
	Networks networks.Lists
	// Generation identifies the content of the source: equal generations mean equal rules.
	Generation string
}

// Problems are the mistakes in a source.
type Problems = strictyaml.Problems

// Source provides rules and follows their changes.
type Source interface {
	// Load returns the rules and their problems. If one of the problems is an error, the set has only its generation. A
	// set without a generation means that the source has no rules yet, or that ctx was done before it had any. Load is
	// called once, before Run. ctx is done no earlier than that of Run.
	Load(ctx context.Context) (Set, Problems)
	// Run calls update once for each change until the context is done, one call after the other. A change with errors
	// is reported, too. If the active rules come back after it, they are reported again. Run may be called once.
	Run(ctx context.Context, update func(Update))
	// Reload makes Run look for a change at once, as on SIGHUP. It does not block and may be called from any goroutine.
	Reload()
}

// Update is a change of a source.
type Update struct {
	// Set is the new rules. If Problems has errors, it has only its generation, and the previous rules stay active.
	Set Set
	// Problems are the mistakes in the source, or the reason why it could not be read.
	Problems Problems
}

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
	o.Before, o.Networks = before, set.Networks
	limits := ratelimit.NewRules(set.Domains, o)
	return &Active{Set: set, Limits: limits, Policies: authz.NewPolicies(set.Policies, limits, l.options.Headers)}
}

// Active returns the active rules.
func (l *Live) Active() *Active { return l.active.Load() }

// Limits returns the active rate limits.
func (l *Live) Limits() *ratelimit.Rules { return l.active.Load().Limits }

// Policies returns the active policies.
func (l *Live) Policies() *authz.Policies { return l.active.Load().Policies }
