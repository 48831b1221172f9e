package ratelimit

import (
	"context"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// batch holds the queries of one DecideAll while they are decided. It is reused for other queries, so that a decision
// allocates little more than its result.
type batch struct {
	plans []plan // one for each query
	// requests belong to the plans that have limits.
	requests []bucket.Request
	outcomes []bucket.Outcome
}

// add plans a query.
func (b *batch) add(l *Limiter, q *Query) {
	b.plans = extend(b.plans)
	p := &b.plans[len(b.plans)-1]
	if p.begin(l, q); p.err != nil || len(p.limits) == 0 {
		return
	}
	p.request = len(b.requests)
	b.requests, b.outcomes = extend(b.requests), extend(b.outcomes)
	r := &b.requests[p.request]
	r.Takes, r.Uncertain = r.Takes[:0], false
	p.ask(r)
}

// extend returns the slice with one more element, which may still hold data of an earlier batch.
func extend[T any](s []T) []T {
	if len(s) < cap(s) {
		return s[:len(s)+1]
	}
	return append(s, *new(T))
}

// take lets the store decide all requests at once. Store error policies answer the requests that it could not decide.
func (b *batch) take(ctx context.Context, l *Limiter) {
	if len(b.requests) == 0 {
		return
	}
	if l.cfg.StopWhenOver {
		b.stopWhenOver(ctx, l)
	}
	l.cfg.Store.Take(ctx, b.requests, b.outcomes)
	var local fallback
	for i := range b.plans {
		p := &b.plans[i]
		if p.request < 0 {
			continue
		}
		switch o := &b.outcomes[p.request]; {
		case o.Err != nil:
			p.undecided(&b.requests[p.request], o, &local)
		case o.Source == bucket.FromDenialCache:
			p.source = FromDenialCache
		case o.Source == bucket.FromLease:
			p.source = FromLease
		}
	}
	local.take(ctx, l.cfg.Fallback)
}

// result returns the result for the query of a plan.
func (b *batch) result(p *plan) Result {
	switch {
	case p.err != nil:
		return Result{Err: p.err}
	case p.request < 0: // no limit applies
		return p.result(nil, &bucket.Outcome{Allowed: true})
	}
	return p.result(b.requests[p.request].Takes, &b.outcomes[p.request])
}
