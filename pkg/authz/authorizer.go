package authz

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Config are the settings of an authorizer.
type Config struct {
	// Policies returns the active policies. Required.
	Policies func() *Policies
	// Keys checks API keys. With nil, no key is valid.
	Keys Keys
	// Tokens checks JWTs. With nil, no token is valid.
	Tokens Tokens
	// Domain is the domain of requests whose route names none (AUTHZ_DOMAIN). "" is the only domain with a policy.
	Domain string
	// Headers are the rate limit headers for the client.
	Headers reply.Headers
	// ProblemBody sends a problem+json body with a refusal.
	ProblemBody bool
	// OnUntrustedHops is called for each request that UntrustedHops counts. Default: no call.
	OnUntrustedHops func(h UntrustedHops)
}

// Authorizer decides requests by the active policies. It is safe for concurrent use.
type Authorizer struct {
	cfg       Config
	decisions sync.Map // domain with a policy, or "" -> counters[reply.Reason]
	failures  counters[failureKind]
	// untrustedHops counts requests to which Envoy appended no x-forwarded-for although the policy trusts it.
	untrustedHops atomic.Uint64
}

// New returns an authorizer.
func New(cfg Config) *Authorizer {
	if cfg.OnUntrustedHops == nil {
		cfg.OnUntrustedHops = func(UntrustedHops) {}
	}
	return &Authorizer{cfg: cfg, failures: newCounters(failureKinds())}
}

// DomainExtension is the key of the route's context_extensions that names the domain of a request.
const DomainExtension = "domain"

// policy returns the policy of a request; nil for none.
func (a *Authorizer) policy(policies *Policies, r *Request) (domain string, p *policy) {
	domain = cmp.Or(r.Extensions[DomainExtension], a.cfg.Domain)
	if domain == "" && len(policies.byDomain) == 1 {
		for domain = range policies.byDomain { // the only one
		}
	}
	return domain, policies.byDomain[domain]
}

// NeedsPeer reports whether the policy for requests without a domain uses the address of the peer.
func (a *Authorizer) NeedsPeer() bool {
	_, p := a.policy(a.cfg.Policies(), &Request{})
	return p != nil && p.needsPeer
}

// Pending is a request between Begin and Finish.
type Pending struct {
	// Query is the query for the limiter. It has no descriptors if nothing is limited.
	Query ratelimit.Query
	// Decision is the decision without the limits.
	Decision Decision

	request *Request
	policy  *policy      // nil if no policy applies
	failed  reply.Reason // why the credential of a refused request is not valid; "" if it is valid
}

// Begin decides a request except for its limits. It returns a decision for every input, and refuses a request that is
// not plainly allowed. Begin blocks only if a token names an unknown key: until the keys of the issuer are fetched, or
// ctx is done. If ctx is done from the start, Begin only starts the fetch, and the request is undecided.
func (a *Authorizer) Begin(ctx context.Context, r *Request) *Pending {
	policies := a.cfg.Policies()
	domain, p := a.policy(policies, r)
	pending := &Pending{request: r, policy: p, Decision: Decision{Domain: domain}}
	if p == nil {
		pending.Decision.refuse(reply.ReasonNoPolicy)
		return pending
	}
	if p.trustsHops && r.withoutPeer() {
		a.untrustedHops.Add(1)
		_, listed := r.Headers.Get(forwardedFor)
		a.cfg.OnUntrustedHops(UntrustedHops{Domain: domain, Absent: !listed})
	}
	a.begin(ctx, pending)
	pending.Query.Domain, pending.Query.Rules, pending.Query.Beforehand = domain, policies.rules, true
	return pending
}

// Finish returns the decision of a request. res is the limiter's result for the Query, nil if that has no descriptors.
func (a *Authorizer) Finish(p *Pending, res *ratelimit.Result) Decision {
	d := &p.Decision
	answer := FailureRefused
	switch {
	case res == nil:
	case p.failed != "":
		answer = d.limitRefused(res)
	default:
		d.limit(res)
	}
	if p.failed != "" {
		a.failures.count(failureKind{p.failed, answer})
	}
	if d.Verdict == Allowed {
		d.cleanse(p.policy, p.request)
	}
	d.finish(a.cfg)
	counted := d.Domain
	if p.policy == nil {
		counted = ""
	}
	a.decisionsOf(counted).count(d.Reason)
	return *d
}

// begin checks the host, the path, the access rules, the credential and its scopes, in this order. Only logs and
// metrics show why a credential is not valid; the client does not learn it.
func (a *Authorizer) begin(ctx context.Context, pending *Pending) {
	p, r, d := pending.policy, pending.request, &pending.Decision
	host, ok := hostname(r.Host)
	if r.HTTP && !ok {
		d.refuse(reply.ReasonHost)
		return
	}
	path, query, ok := r.path()
	if r.HTTP && !p.unsafePaths && (!ok || unsafePath(path)) {
		d.refuse(reply.ReasonPath)
		return
	}
	access := p.rule(r, host, plainPath(path))
	if access.require == Denied {
		d.refuse(reply.ReasonDenied)
		return
	}
	open := access.require == Open || p.preflight && r.preflight()
	identity, carried, err := a.authenticate(withoutWaiting(ctx, open), p, r, query)
	f := &facts{request: r, host: host, query: query, identity: &d.Identity, access: access}
	failed := failure(err)
	d.Cause = causeOf(err)
	if !d.admit(p, identity, carried, err, open) {
		// Without a MaxHold, so that a refusal takes no place in the queue of a max_delay.
		if pending.failed = failed; failed != "" {
			pending.Query = ratelimit.Query{Descriptors: descriptorsOf(p.refused, f), Refused: true}
		}
		return
	}
	if failed != "" && failed != reply.ReasonAbsent {
		a.failures.count(failureKind{failed, FailurePassed})
	}
	if !open && !d.Identity.granted(access.scopes) {
		d.refuse(reply.ReasonScope)
		return
	}
	pending.Query = ratelimit.Query{
		Descriptors: descriptorsOf(p.limits, f), CredentialLimit: d.Identity.Limit, MaxHold: r.MaxHold.Microseconds(),
	}
}

// withoutWaiting returns a cancelled context if credentials are optional, so that the request never waits for keys.
func withoutWaiting(ctx context.Context, open bool) context.Context {
	if !open {
		return ctx
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	return done
}

// admit decides by the credential of the request. Under an open rule, an invalid credential counts as none.
func (d *Decision) admit(p *policy, id Identity, carried *credential, err error, open bool) bool {
	anonymous := Identity{Method: MethodAnonymous}
	switch reason := failure(err); {
	case err == nil:
		d.Verdict, d.Reason, d.Identity = Allowed, reply.ReasonAllowed, id
	case open:
		d.Verdict, d.Reason, d.Identity = Allowed, reply.ReasonOpen, anonymous
	case reason == reply.ReasonAbsent && p.anonymous:
		d.Verdict, d.Reason, d.Identity = Allowed, reply.ReasonAnonymous, anonymous
	case errors.Is(err, ErrUnavailable):
		d.undecided()
	case reason == reply.ReasonAbsent:
		d.refuseWith(reason, p.absent, p.challenges[reason])
	case carried.issuer != nil:
		d.refuseWith(reason, p.invalidToken, p.challenges[reason])
	default: // the challenge lists the accepted credentials
		d.refuseWith(reason, p.invalid, p.challenges[reply.ReasonAbsent])
	}
	return d.Verdict == Allowed
}

// limit adds the result of the limiter.
func (d *Decision) limit(res *ratelimit.Result) {
	if res.Err == nil {
		d.Limits = res
	}
	switch {
	case res.Err != nil, !res.Allowed && res.Source == ratelimit.FromPolicyDeny:
		d.undecided()
	case res.Allowed:
		d.Delay = res.Delay
	default:
		d.refuse(reply.ReasonOverLimit)
	}
}
