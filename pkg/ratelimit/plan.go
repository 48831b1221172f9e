package ratelimit

import (
	"fmt"
	"slices"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Plan is a query while it is decided: the limits that apply, and their takes. The zero value is ready for
// Limiter.Plan. After Limiter.Finish has returned true, or after Reset, it is ready for another query.
type Plan struct {
	limiter *Limiter
	rules   *Rules
	query   *Query
	matches []match // one for each descriptor
	// limits are the limits that apply, in the order of their descriptors.
	limits []appliedLimit
	stage  stage
	// counted means that the store only counts, and that compare decides (COMPATIBILITY=strict).
	counted bool
	began   int64 // the time of the local cache
	// hold is how long the answer can be held: Query.MaxHold, or 0 without the places.
	hold   int64
	places Places
	// request is the index of the request in the current round, or in the next one while Finish adds it.
	request int
	// local is what the store could not decide, while the fallback store decides a part.
	local *localPart
	// decider is what decided; err is set if there is none.
	decider Decider
	err     error
}

// stage is what a plan waits for.
type stage uint8

const (
	settled       stage = iota // nothing: no limit needs the store
	reading                    // the counts of its buckets, which nothing has charged (StopWhenOver)
	taking                     // the decision of the store
	takingLocally              // the decision of the fallback store
)

// match is the result of matching one descriptor.
type match struct {
	rule    *Rule // nil if none matched, or if the request brought its limit and the rule has no Override.
	holds   int   // 1 if the last entry asks for a hold, and is no part of the match, else 0.
	limited bool  // a limit applies.
	inForce bool  // one that is not in shadow.
}

type appliedLimit struct {
	limit *RuleLimit
	// descriptor and take are indexes in the query and in the request.
	descriptor, take int
	// uncharged means that the limit is not charged, because another one does not fit (StopWhenOver).
	uncharged bool
	// cached is how long the local cache denies the limit, in µs. Without a take, the store does not see it.
	cached int64
	// hold is what the descriptor asks of one hold, nil if it asks for none.
	hold *bucket.Hold
	// keyed is the rule that names the bucket; nil for a limit of the request that has a bucket of its own.
	keyed *Rule
}

func (a appliedLimit) isCached() bool { return a.cached > 0 }

// Plan finds the limits that apply to a query, and adds a request for them to the rounds, unless there are none. The
// query and all that it refers to must not change until Finish has returned true.
func (l *Limiter) Plan(q *Query, p *Plan, r *Rounds) {
	if q.Dry {
		l = l.forDry
	}
	p.limiter, p.query, p.rules = l, q, q.Rules
	p.matches = slices.Grow(p.matches, len(q.Descriptors))[:len(q.Descriptors)]
	if p.rules == nil {
		p.rules = l.cfg.Rules()
	}
	switch {
	case q.Domain == "":
		p.err = ErrNoDomain
	case len(q.Descriptors) == 0:
		p.err = ErrNoDescriptors
	case p.rules == nil:
		p.err = ErrNoRules
	case p.rules.domains[q.Domain] == nil:
		l.miss(p.rules, q.Domain, nil)
	default:
		p.err = p.match(p.rules.domains[q.Domain])
	}
	switch {
	case p.err != nil:
		l.totals.Invalid.Add(1)
	case len(p.limits) > 0:
		p.takePlaces()
		p.request = len(r.now.requests)
		request := r.now.add()
		p.addTakes(request, r)
		switch {
		case len(request.Takes) == 0:
			r.now.truncate(p.request)
			p.decider = FromDenialCache
			return
		case p.counted && l.cfg.StopWhenOver && slices.ContainsFunc(p.limits, appliedLimit.isCached):
			p.leaveOutOthers(request.Takes)
		case p.counted && l.cfg.StopWhenOver:
			p.stage = reading
			for i := range request.Takes { // they only show their buckets
				request.Takes[i].Cost, request.Takes[i].Refund = 0, 0
			}
			return
		}
		p.stage = taking
	}
}

// UsesStore reports whether a store decides a part of the query.
func (p *Plan) UsesStore() bool { return p.stage != settled }

// Finish reads what the store of the current round has decided. It returns true if the result of the query is in res,
// whose slices it uses again. Otherwise it has added a request to the next round.
func (l *Limiter) Finish(p *Plan, r *Rounds, res *Result) bool {
	switch {
	case p.err != nil:
		res.reset(0, 0)
		res.Err = p.err
		return true
	case p.stage == settled:
		p.result(nil, &bucket.Outcome{Allowed: true}, r, res)
		return true
	}
	request, outcome := &r.now.requests[p.request], &r.now.outcomes[p.request]
	if outcome.Err == ErrUnanswered { //nolint:errorlint // Start has set exactly this value
		p.err = outcome.Err
		return l.Finish(p, r, res)
	}
	switch p.stage {
	case reading:
		p.stage = taking
		p.leaveOut(outcome)
		p.request = len(r.next.requests)
		p.addTakes(r.next.add(), r)
		return false
	case takingLocally:
		if outcome.Err == nil { // else the request stays allowed
			p.local.whole.Merge(outcome, p.local.index)
			p.decider = FromLastKnown
		}
		p.result(p.local.takes, &p.local.whole, r, res)
		return true
	}
	if outcome.Err != nil {
		if p.undecided(request, outcome, r) {
			return false
		}
		if p.err != nil { // COMPATIBILITY=strict
			return l.Finish(p, r, res)
		}
	}
	switch outcome.Origin {
	case bucket.FromDenialCache:
		p.decider = FromDenialCache
	case bucket.FromLease:
		p.decider = FromLease
	}
	p.result(request.Takes, outcome, r, res)
	return true
}

// Reset drops all that the plan refers to, and keeps its memory for another query unless it is large.
func (p *Plan) Reset() {
	p.LeavePlaces()
	matches, limits, places := texts.Clear(p.matches), texts.Clear(p.limits), p.places
	*p = Plan{}
	p.matches, p.limits, p.places = matches, limits, places
}

// match finds the rule of each descriptor in the rules of the domain, then drops the limits that others replace.
func (p *Plan) match(rules *descriptors.Tree[position]) error {
	var replaced []string
	for i := range p.query.Descriptors {
		d := &p.query.Descriptors[i]
		var rule *Rule
		if asksHold(d.Entries) {
			rule, p.matches[i].holds = p.findHeld(rules, d)
		} else if node := rules.Find(d.Entries); node != nil {
			rule = node.Value.rule
		}
		overrides := rule != nil && rule.overrides
		switch {
		case d.Limit != nil && !overrides:
			limit, err := p.rules.requestLimit(p.query.Domain, d.Limit)
			if err != nil {
				return QueryError(fmt.Sprintf("limit of descriptor %d: %v", i, err))
			}
			a := appliedLimit{limit: limit, descriptor: i}
			if p.limiter.cfg.Strict && rule != nil {
				a.share(rule)
			}
			p.limits = append(p.limits, a)
			continue
		case rule == nil:
			p.limiter.miss(p.rules, p.query.Domain, d)
			continue
		}
		p.matches[i].rule = rule
		brought := overrides && p.replace(rule, d, i)
		for k := range rule.Limits {
			limit := &rule.Limits[k]
			if len(limit.Replaces) > 0 {
				replaced = append(replaced, limit.applied(d.Entries).Replaces...)
			}
			if !rule.Unlimited && !brought {
				p.limits = append(p.limits, appliedLimit{limit: limit, descriptor: i, keyed: rule})
			}
		}
	}
	if len(replaced) > 0 {
		p.limits = slices.DeleteFunc(p.limits, func(a appliedLimit) bool {
			return a.limit.replaceable != "" && slices.Contains(replaced, a.limit.replaceable)
		})
	}
	for i := range p.limits {
		a := &p.limits[i]
		if a.limit.out != nil {
			a.limit = a.limit.applied(p.query.Descriptors[a.descriptor].Entries)
		}
		m := &p.matches[a.descriptor]
		m.limited, m.inForce = true, m.inForce || !a.limit.Shadow
	}
	return nil
}

// requestLimit compiles a limit that the request brought: the default algorithm, and a burst equal to its requests.
func (r *Rules) requestLimit(domain string, o *descriptors.RequestLimit) (*RuleLimit, error) {
	l, err := r.options.defaults().apply(specOf(o)).countable()
	if err != nil {
		return nil, err
	}
	limit := &RuleLimit{
		Limit: l, Unit: o.Unit, UnitMultiplier: max(1, o.UnitMultiplier), OnStoreError: r.options.DefaultPolicy,
		Policy: "override", Status: r.options.Status, hashTag: -1,
	}
	limit.PolicyItem = limit.policyItem()
	limit.identity, limit.rule = string(requestLimitIdentity(domain, l)), hashOf(requestLimitsOf(domain))
	return limit, nil
}

// addTakes adds a take for each limit that the local cache does not deny. Its key is in the memory of the rounds.
func (p *Plan) addTakes(r *bucket.Request, rounds *Rounds) {
	r.Dry = p.limiter.dry
	quotasCanDeny := p.quotasCanDeny()
	p.counted = p.countsOnly()
	cache := p.limiter.cache
	if p.stage != settled || !p.counted {
		cache = nil // only the first round asks it
	}
	p.began = cache.now(p.began)
	for i := range p.limits {
		a := &p.limits[i]
		if a.cached > 0 {
			continue
		}
		m, d := &p.matches[a.descriptor], &p.query.Descriptors[a.descriptor]
		var t bucket.Take
		if a.limit.Hold != nil && m.holds > 0 {
			p.askHold(&t, d, a)
		} else {
			p.cost(&t, d, a.limit)
			t.Hold = a.limit.Hold
		}
		t.Rule, t.Limit = a.limit.rule, a.limit.Limit
		if p.query.Refused {
			t.Rule = ^t.Rule
		}
		if a.limit.MaxDelay > 0 {
			p.queue(&t, a.limit)
		}
		t.Role = p.role(m.rule, a.limit)
		if t.Role == bucket.Quota && !quotasCanDeny {
			t.Role = bucket.Shadow
		}
		length := len(rounds.keys)
		rounds.keys = a.keyed.appendKey(
			rounds.keys, p.rules.options.KeyPrefix, a.limit, p.entries(a.descriptor), p.query.Refused)
		t.Key = texts.View(rounds.keys[length:])
		if cache != nil {
			if a.cached = cache.denies(&t, p.began); a.cached > 0 {
				continue
			}
		}
		if !p.limiter.cfg.Strict {
			t.Lease = a.limit.Lease
		}
		if p.counted { // no request is denied; the state of a fixed window does not depend on the requests in the limit
			t.Limit.Requests, t.Role, t.CountDenied = bucket.MaxWindowRequests, bucket.Shadow, true
		}
		if a.uncharged {
			t.Cost = 0
		}
		a.take = r.Add(t)
	}
}

// entries returns the entries of a descriptor without the one that asks for a hold.
func (p *Plan) entries(descriptor int) []descriptors.Entry {
	entries := p.query.Descriptors[descriptor].Entries
	return entries[:len(entries)-p.matches[descriptor].holds]
}

// queue lets a take of a limit with a MaxDelay wait for what leaks before it. Each waiting request has put at least one
// unit into the bucket, so these units also bound how many wait.
func (p *Plan) queue(t *bucket.Take, l *RuleLimit) {
	ahead := min(l.MaxDelay, p.hold) * l.Requests / l.Window // a MaxDelay is at most a minute, so it fits
	if most := p.limiter.cfg.MaxHeld; most > 0 {
		ahead = min(ahead, most)
	}
	t.Queue(ahead)
}

// hits returns the hits of a descriptor. Its own precede those of the request; an explicit 0 is a peek.
func (p *Plan) hits(d *descriptors.Descriptor) uint64 {
	if d.Hits != nil {
		return *d.Hits
	}
	return max(1, p.query.Hits)
}

// cost sets what an empty take charges for a descriptor.
func (p *Plan) cost(t *bucket.Take, d *descriptors.Descriptor, l *RuleLimit) {
	hits := p.hits(d)
	if d.Negative {
		t.Refund = hits
		return
	}
	t.Cost = hits
	if l.CountDenied != nil {
		t.CountDenied = *l.CountDenied
	} else {
		t.CountDenied = d.Hits != nil && !p.query.Beforehand || p.limiter.cfg.Strict
	}
	if hits == 0 && !p.limiter.cfg.Strict {
		t.Need = 1
	}
}

// role returns the role of a limit of a rule, or of one that the request brought if the rule is nil.
func (p *Plan) role(r *Rule, l *RuleLimit) bucket.Role {
	switch {
	case l.Shadow:
		return bucket.Shadow
	case r != nil && r.Node.Quota || p.limiter.cfg.Quota:
		return bucket.Quota
	}
	return bucket.Enforce
}

// quotasCanDeny is false if one quota always passes, because quotas only deny together. Such a quota is in shadow
// mode. With QUOTA_MODE it is also any descriptor to which no limit applies, as in envoyproxy/ratelimit.
func (p *Plan) quotasCanDeny() bool {
	for i := range p.matches {
		m := &p.matches[i]
		unlimited := m.rule != nil && m.rule.Unlimited
		if p.limiter.cfg.Quota && !m.limited && !unlimited {
			return false
		}
		if m.rule != nil && m.limited && !m.inForce && (m.rule.Node.Quota || p.limiter.cfg.Quota) {
			return false
		}
	}
	return true
}
