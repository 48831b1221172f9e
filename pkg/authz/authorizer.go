package authz

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Config are the settings of an authorizer.
type Config struct {
	// Limiter decides the limits. Required.
	Limiter *ratelimit.Limiter
	// Keys checks API keys; nil when there are none, so that no key is valid.
	Keys Keys
	// Tokens checks JWTs; nil when no policy has any.
	Tokens Tokens
	// Domain is the one of requests whose route names none (AUTHZ_DOMAIN). "" for the only one that has a policy.
	Domain string
	// Headers are the rate limit headers for the client.
	Headers reply.Headers
	// ProblemBody sends a problem+json body with a refusal.
	ProblemBody bool
	// OnUntrustedHops is called for each request that UntrustedHops counts. Default: no call.
	OnUntrustedHops func(h UntrustedHops)
}

// Authorizer decides requests by the policies in force. It is safe for concurrent use.
type Authorizer struct {
	cfg      Config
	inForce  atomic.Pointer[inForce]
	counters counters
	failures failureCounters
	// untrustedHops counts requests with an x-forwarded-for that Envoy did not append to, where a policy trusts it.
	untrustedHops atomic.Uint64
}

// inForce are policies and the rules that limit the descriptors they make: of the same files.
type inForce struct {
	policies *Policies
	rules    *ratelimit.Rules
}

// New returns an authorizer without policies, which refuses everything.
func New(cfg Config) *Authorizer {
	if cfg.OnUntrustedHops == nil {
		cfg.OnUntrustedHops = func(UntrustedHops) {}
	}
	a := &Authorizer{cfg: cfg}
	a.inForce.Store(&inForce{policies: &Policies{}})
	return a
}

// SetPolicies puts policies in force for the requests that come from now on, with the rules that the limiter has now: set those
// before.
func (a *Authorizer) SetPolicies(policies *Policies) {
	a.inForce.Store(&inForce{policies: policies, rules: a.cfg.Limiter.Rules()})
}

// DomainExtension is the key of the route's context_extensions that names the domain of a request.
const DomainExtension = "domain"

// policy returns the policy of a request; nil when none is meant.
func (a *Authorizer) policy(policies *Policies, r *Request) (domain string, p *policy) {
	if domain := r.Extensions[DomainExtension]; domain != "" {
		return domain, policies.byDomain[domain]
	}
	if a.cfg.Domain != "" {
		return a.cfg.Domain, policies.byDomain[a.cfg.Domain]
	}
	return policies.only()
}

// NeedsPeer reports whether the policy of requests that name no domain takes the address of the peer.
func (a *Authorizer) NeedsPeer() bool {
	_, p := a.policy(a.inForce.Load().policies, &Request{})
	return p != nil && p.needsPeer
}

// Decide answers a request. Whatever a client has put into it, the answer is a decision, and what is not plainly allowed is
// refused.
func (a *Authorizer) Decide(ctx context.Context, r *Request) Decision {
	current := a.inForce.Load()
	domain, p := a.policy(current.policies, r)
	d := Decision{Domain: domain}
	if p == nil {
		d.refuse(ReasonNoPolicy, 403, "No policy applies to this request.")
	} else {
		if p.trustsHops && r.withoutPeer() {
			a.untrustedHops.Add(1)
			_, listed := r.Headers.Get(forwardedFor)
			a.cfg.OnUntrustedHops(UntrustedHops{Domain: domain, Absent: !listed})
		}
		a.decide(ctx, p, current.rules, r, &d)
		d.cleanse(p, r)
	}
	d.finish(a.cfg)
	a.counters.count(d.Reason)
	return d
}

// decide goes through what can refuse a request, in order: its host, its path, the rules of access, the credential, its scopes, the
// limits. What is wrong with a credential is for logs and metrics; the client is not told.
func (a *Authorizer) decide(ctx context.Context, p *policy, rules *ratelimit.Rules, r *Request, d *Decision) {
	host, ok := hostname(r.Host)
	if r.HTTP && !ok {
		d.refuse(ReasonHost, 400, "The host is ambiguous: it is not a name or an IP address with an optional port.")
		return
	}
	path, query, ok := r.path()
	if r.HTTP && !p.unsafePaths && (!ok || unsafePath(path)) {
		d.refuse(ReasonPath, 400, "The path is ambiguous: it has empty or dot segments, parameters, backslashes, slashes or percent signs "+
			"that are encoded, or bytes that are not UTF-8.")
		return
	}
	access := p.rule(r, host, plainPath(path))
	if access.require == Denied {
		d.refuse(ReasonDenied, 403, "This is not allowed to anybody.")
		return
	}
	open := access.require == Open || p.preflight && r.preflight()
	identity, carried, err := a.authenticate(withoutWaiting(ctx, open), p, r, query)
	f := &facts{request: r, host: host, query: query, identity: &d.Identity, access: access}
	failed := failure(err)
	if !d.admit(p, identity, carried, err, open) {
		if failed != "" {
			a.failures.count(failed, a.limitRefused(ctx, p, rules, f, d))
		}
		return
	}
	if failed != "" && failed != ReasonAbsent {
		a.failures.count(failed, FailurePassed)
	}
	if !open && !d.Identity.granted(access.scopes) {
		d.refuse(ReasonScope, 403, "The credential does not allow this.")
		return
	}
	a.limit(ctx, p, rules, f, d)
}

// withoutWaiting is the context for a credential that a request may be without: done, so that nobody waits for an issuer's keys who
// need not say who he is.
func withoutWaiting(ctx context.Context, open bool) context.Context {
	if !open {
		return ctx
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	return done
}

// admit decides by the credential that the request carries. Where none is needed, one that is not valid is as none.
func (d *Decision) admit(p *policy, id Identity, carried *credential, err error, open bool) bool {
	nobody := Identity{Method: MethodAnonymous}
	switch {
	case err == nil:
		d.Identity, d.Reason = id, ReasonAllowed
	case open:
		d.Identity, d.Reason = nobody, ReasonOpen
	case errors.Is(err, errAbsent) && p.anonymous:
		d.Identity, d.Reason = nobody, ReasonAnonymous
	case errors.Is(err, errAbsent):
		d.refuse(ReasonAbsent, p.absent, "A credential is needed.")
		d.challenge(p, ReasonAbsent)
		return false
	case errors.Is(err, ErrUnavailable):
		d.undecided()
		return false
	case carried.issuer != nil:
		d.refuse(failure(err), p.invalidToken, "The credential is not valid.")
		d.challenge(p, d.Reason)
		return false
	default:
		d.refuse(failure(err), p.invalid, "The credential is not valid.")
		d.challenge(p, ReasonAbsent) // which credentials are taken
		return false
	}
	d.Verdict = Allowed
	return true
}

// holdMargin is what is left of the caller's deadline for an answer that was held.
const holdMargin = 5 * time.Millisecond

// maxHold bounds how long an answer is held when the caller states no deadline.
const maxHold = time.Minute

func (a *Authorizer) ask(ctx context.Context, q ratelimit.Query) *ratelimit.Result {
	results := make([]ratelimit.Result, 1)
	a.cfg.Limiter.DecideAll(ctx, []ratelimit.Query{q}, results)
	return &results[0]
}

// limit asks the limiter.
func (a *Authorizer) limit(ctx context.Context, p *policy, rules *ratelimit.Rules, f *facts, d *Decision) {
	list := descriptorsOf(p.limits, f)
	if len(list) == 0 {
		return
	}
	hold := maxHold
	if f.request.NoHold {
		hold = 0
	} else if deadline, ok := ctx.Deadline(); ok {
		hold = min(maxHold, max(0, time.Until(deadline)-holdMargin))
	}
	res := a.ask(ctx, ratelimit.Query{
		Domain: d.Domain, Descriptors: list, Own: d.Identity.Limit, Beforehand: true, MaxHold: hold.Microseconds(), Rules: rules,
	})
	if res.Err != nil {
		d.undecided()
		return
	}
	d.Limits = res
	switch {
	case res.Allowed:
		d.Delay = res.Delay
	case res.Answer == ratelimit.FromPolicyDeny:
		d.undecided()
	default:
		d.refuse(ReasonOverLimit, 429, "")
	}
}
