package authz

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/authz/credential"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
)

// Config are the settings of an authorizer.
type Config struct {
	// Policies returns the active policies. Required.
	Policies func() *Policies
	// Checkers judge credentials, by the names of their kinds. Without the checker of its kind, no credential is valid.
	Checkers map[string]credential.Checker
	// Domain is the domain of requests whose route names none (AUTHZ_DOMAIN). "" is the only domain with a policy.
	Domain string
	// Headers are the rate limit headers for the client.
	Headers reply.Headers
	// ProblemBody sends a problem+json body with a refusal.
	ProblemBody bool
	// OnUntrustedHops is called for each request that UntrustedHops counts. Default: no call.
	OnUntrustedHops func(h UntrustedHops)
}

// UntrustedHops is a request whose x-forwarded-for does not end with its peer, although the policy has trusted_hops.
type UntrustedHops struct {
	Domain string
	// Absent is true if the request has no x-forwarded-for. Over HTTP, Envoy forwards it only if allowed_headers lists it.
	Absent bool
}

// Authorizer decides requests by the active policies. It is safe for concurrent use.
type Authorizer struct {
	cfg       Config
	adding    sync.Mutex                                        // of a domain
	decisions atomic.Pointer[map[string]counters[reply.Reason]] // by domain with a policy, or ""; no map is changed
	failures  counters[failureKind]
	// untrustedHops counts requests to which Envoy appended no x-forwarded-for although the policy trusts it.
	untrustedHops atomic.Uint64
	done          context.Context // for a check of a credential that must not wait
}

// New returns an authorizer.
func New(cfg Config) *Authorizer {
	if cfg.OnUntrustedHops == nil {
		cfg.OnUntrustedHops = func(UntrustedHops) {}
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	a := &Authorizer{cfg: cfg, failures: newCounters(failureKinds()), done: done}
	a.decisions.Store(&map[string]counters[reply.Reason]{})
	return a
}

// Dry returns an authorizer that decides as a does, and counts and reports nothing.
func (a *Authorizer) Dry() *Authorizer {
	cfg := a.cfg
	cfg.OnUntrustedHops = nil
	return New(cfg)
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

// Pending is a request between Begin and Finish. Its zero value is ready for a request. Reset makes it so again.
type Pending struct {
	// Query is the query for the limiter. It has no descriptors if nothing is limited.
	Query ratelimit.Query
	// Decision is the decision without the limits, and after Finish the whole decision.
	Decision Decision
	// Peek asks the limiter for a decision that changes nothing, and waits for it. Set it before Begin. Without it,
	// Begin lets a server judge credentials of clients that have been refused too often.
	Peek func(ctx context.Context, q ratelimit.Query) *ratelimit.Result

	facts  facts
	policy *policy // nil if no policy applies
	// used is the valid credential of the request, nil for none.
	used   *accepted
	quota  bool         // see readsQuota
	failed reply.Reason // why the credential of a refused request is not valid; "" if it is valid
	now    bool         // the decision must not take long
	// limited is the result of Peek, nil if it was not asked.
	limited *ratelimit.Result
	// entries, limits and body are memory: of the entries of the query, of the rate limit headers, and of the body.
	entries []descriptors.Entry
	limits  reply.List
	body    []byte
}

// Reset ends the use for a request, of which nothing is kept.
func (p *Pending) Reset() {
	d := &p.Decision
	p.limits.Reset()
	*p = Pending{
		Query:   ratelimit.Query{Descriptors: texts.Clear(p.Query.Descriptors)},
		entries: texts.Clear(p.entries), limits: p.limits, body: texts.Clear(p.body),
		Decision: Decision{
			Absent: texts.Clear(d.Absent), Remove: texts.Clear(d.Remove),
			ToUpstream: texts.Clear(d.ToUpstream), ToClient: texts.Clear(d.ToClient),
		},
	}
}

// Begin decides a request except for its limits. It makes a decision for every input, and refuses a request that is not
// plainly allowed. Begin blocks only if a token names an unknown key, or if its issuer has to be asked about it: until
// the issuer has answered, or ctx is done. If ctx is done from the start, Begin only starts the fetch of keys, and the
// request is undecided.
func (a *Authorizer) Begin(ctx context.Context, r *Request, p *Pending) {
	p.facts.request = r
	_ = a.begin(ctx, p) // never errNotNow
}

// BeginNow does as Begin, if that takes little time. Otherwise it returns false, and p must be reset.
func (a *Authorizer) BeginNow(r *Request, p *Pending) (begun bool) {
	p.facts.request, p.now = r, true
	return a.begin(a.done, p) == nil
}

// begin returns errNotNow if p.now and the decision takes more time.
func (a *Authorizer) begin(ctx context.Context, p *Pending) error {
	policies, r := a.cfg.Policies(), p.facts.request
	p.Decision.Domain, p.policy = a.policy(policies, r)
	switch {
	case r.Quota == QuotaAlways && (p.policy == nil || p.policy.quotaPath == ""):
		p.Decision.refuseWith(reply.ReasonNoPolicy, http.StatusNotFound, "")
		return nil
	case p.policy == nil:
		p.Decision.refuse(reply.ReasonNoPolicy)
		return nil
	}
	domain := p.policy.domain // the same text, but no part of the request
	p.Decision.Domain = domain
	p.Query.Domain, p.Query.Rules, p.Query.Beforehand = domain, policies.rules, true
	if err := a.judge(ctx, p); err != nil {
		return err
	}
	if p.policy.trustsHops && r.withoutPeer() {
		a.untrustedHops.Add(1)
		_, listed := r.Headers.Get(forwardedFor)
		a.cfg.OnUntrustedHops(UntrustedHops{Domain: domain, Absent: !listed})
	}
	return nil
}

// Finish completes the decision of a request. res is the limiter's result for the Query, nil without descriptors.
func (a *Authorizer) Finish(p *Pending, res *ratelimit.Result) {
	d := &p.Decision
	answer := FailureRefused
	switch {
	case p.Query.Dry:
		d.showQuota(res)
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
		d.cleanse(p.policy, p.facts.request, p.used)
	}
	p.finish(&a.cfg)
	counted := ""
	if p.policy != nil {
		counted = p.policy.domain
	}
	a.decisionsOf(counted).count(d.LogReason())
}

// judge checks size, host, path, access rules, credential and scopes, in this order. No client learns why one fails.
func (a *Authorizer) judge(ctx context.Context, pending *Pending) error {
	p, f, d := pending.policy, &pending.facts, &pending.Decision
	r := f.request
	if r.TooLarge || p.readsMetadata && r.Metadata != nil && !r.Metadata.Fits() {
		d.refuse(reply.ReasonTooLarge)
		return nil
	}
	host, ok := hostname(r.Host)
	if r.HTTP && !ok {
		d.refuse(reply.ReasonHost)
		return nil
	}
	path, query, ok := r.path()
	if r.HTTP && !p.unsafePaths && (!ok || unsafePath(path)) {
		d.refuse(reply.ReasonPath)
		return nil
	}
	path = plainPath(path)
	if pending.quota = p.readsQuota(r, path); pending.quota {
		path = p.quotaPath
	}
	f.host, f.path, f.query, f.decision = host, path, query, d
	var carried *accepted
	var err error
	known := false
	access := p.rule(r, host, path, 0)
	for ; access.Enforce != nil; access = p.rule(r, host, path, access.next) {
		f.access = access
		if !known && slices.ContainsFunc(access.by, entryMaker.ofCredential) {
			if carried, err = a.authenticate(ctx, pending); err == errNotNow { //nolint:errorlint // as below
				return err
			}
			known = true
		}
		if access.Enforce.Includes(access.value(f)) {
			break
		}
		f.shadow = cmp.Or(f.shadow, access)
	}
	f.access = access
	if access.Require == Denied {
		d.refuse(reply.ReasonDenied)
		return nil
	}
	open := !pending.quota && (access.Require == Open || p.preflight && r.preflight())
	if open {
		ctx = a.done // credentials are optional, so the request never waits for keys
	}
	if !known {
		carried, err = a.authenticate(ctx, pending)
	}
	if err == errNotNow { //nolint:errorlint // authenticate returns exactly this value
		return err
	}
	if err == nil {
		pending.used = carried
	}
	failed := failure(err)
	if err == errTooOften && !open { //nolint:errorlint // as above
		a.failures.count(failureKind{failed, d.limitRefused(pending.limited)})
		return nil
	}
	d.explain(err)
	if !pending.admit(carried, err, open) {
		// Without a MaxHold, so that a refusal takes no place in the queue of a max_delay.
		if pending.failed = failed; failed != "" {
			pending.Query.Refused = true
			pending.describe(p.refused)
		}
		return nil
	}
	if failed != "" && failed != reply.ReasonAbsent {
		a.failures.count(failureKind{failed, FailurePassed})
	}
	if !open && d.lacksScope(access) {
		d.refuse(reply.ReasonScope)
		return nil
	}
	if s := f.shadow; s != nil && pending.refuses(s, failed) {
		d.ShadowDenied = cmp.Or(s.Position, ratelimit.Element("access", s.next-1))
	}
	pending.Query.CredentialLimit, pending.Query.MaxHold = d.Identity.Limit, r.MaxHold.Microseconds()
	pending.Query.Dry = pending.quota
	pending.describe(p.limits)
	return nil
}

// lacksScope reports whether the identity lacks a scope that an access rule requires.
func (d *Decision) lacksScope(a *accessRule) bool {
	lacks := func(scope string) bool { return !slices.Contains(d.Identity.Scopes, scope) }
	return slices.ContainsFunc(a.Scopes, lacks)
}

// refuses reports whether an access rule would refuse the request. failed is why its credential is not valid, "" if it
// is.
func (p *Pending) refuses(a *accessRule, failed reply.Reason) bool {
	switch {
	case a.Require == Denied:
		return true
	case !p.quota && p.policy.preflight && p.facts.request.preflight():
		return false
	case failed == reply.ReasonAbsent && p.policy.anonymous && !p.quota:
		failed = ""
	}
	return failed != "" || p.Decision.lacksScope(a)
}

// admit decides by the credential of the request, whose identity the decision has unless there is an error. Under an
// open rule, an invalid credential counts as none. A request for the quota needs a credential.
func (p *Pending) admit(carried *accepted, err error, open bool) bool {
	d, policy := &p.Decision, p.policy
	switch reason := failure(err); {
	case err == nil:
		d.Verdict, d.Reason = Allowed, reply.ReasonAllowed
	case open:
		d.Verdict, d.Reason, d.Identity.Method = Allowed, reply.ReasonOpen, credential.Anonymous
	case reason == reply.ReasonAbsent && policy.anonymous && !p.quota:
		d.Verdict, d.Reason, d.Identity.Method = Allowed, reply.ReasonAnonymous, credential.Anonymous
	case errors.Is(err, credential.ErrUnavailable):
		d.undecided()
	case reason == reply.ReasonAbsent:
		d.refuseWith(reason, policy.absent, policy.challenges[reason])
	case carried.traits.Token:
		d.refuseWith(reason, policy.invalidToken, policy.challenges[reason])
	default: // the challenge lists the accepted credentials
		d.refuseWith(reason, policy.invalid, policy.challenges[reply.ReasonAbsent])
	}
	return d.Verdict == Allowed
}

// limit adds the result of the limiter.
func (d *Decision) limit(res *ratelimit.Result) {
	if res.Err == nil {
		d.Limits = res
	}
	switch {
	case res.Err != nil, !res.Allowed && res.Decider == ratelimit.FromPolicyDeny:
		d.undecided()
	case res.Allowed:
		d.Delay = res.Delay
	default:
		d.refuseWith(reply.ReasonOverLimit, res.DeniedBy().DeniedStatus(), "")
	}
}

// limitRefused answers a request that was refused for its credential: with the status of the limit of Policy.Refused
// that it exceeds, else as before. Without a result it stays refused: Envoy with failure_mode_allow could let an
// undecided request pass. Policy.Limits has other buckets, so an attacker cannot lock out clients at the same address.
func (d *Decision) limitRefused(res *ratelimit.Result) FailureAnswer {
	if res.Err != nil || res.Allowed || res.Decider == ratelimit.FromPolicyDeny {
		return FailureRefused
	}
	d.Limits, d.ToClient = res, d.ToClient[:0] // without the challenge, which invites another try
	d.refuseWith(reply.ReasonRefusedTooOften, res.DeniedBy().DeniedStatus(), "")
	return FailureLimited
}
