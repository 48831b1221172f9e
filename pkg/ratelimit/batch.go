package ratelimit

import (
	"context"
	"sync/atomic"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// batch holds the queries of one call of Limiter.Start while they are decided. The goroutine that completes a call of a
// store takes the next step. A batch is reused for other queries, so that a decision allocates little more than its
// result.
type batch struct {
	limiter *Limiter
	// took and tookLocal take the next step after Config.Store and Config.Fallback. They are made once.
	took, tookLocal func()

	// What follows is of one call.
	ctx     context.Context
	queries []Query
	results []Result
	done    func()
	decided bool          // all results are there
	use     atomic.Uint64 // the number of the use, which ends with done

	plans []plan // one for each query
	// requests belong to the plans that have limits.
	requests []bucket.Request
	outcomes []bucket.Outcome
	keys     []byte // of the takes of all requests
	local    fallback
}

func newBatch(l *Limiter) *batch {
	b := &batch{limiter: l}
	b.took = func() { b.step((*batch).fallBack) }
	b.tookLocal = func() { b.step((*batch).mergeLocal) }
	return b
}

// begin sets what one call of Limiter.Start is about.
func (b *batch) begin(ctx context.Context, queries []Query, results []Result, done func()) {
	b.ctx, b.queries, b.results, b.done = ctx, queries, results, done
	b.decided = false
	b.plans, b.requests, b.outcomes, b.local = b.plans[:0], b.requests[:0], b.outcomes[:0], fallback{}
}

// step takes a step, whose last action is to call a store or the next step. After a panic, the batch ends at once.
func (b *batch) step(next func(*batch)) {
	use, over := b.use.Load(), false
	defer func() {
		if !over {
			b.end(use)
		}
	}()
	next(b)
	over = true // the batch may be in use for other queries now
}

// plan finds the limits of all queries, and lets the store decide them at once.
func (b *batch) plan() {
	for i := range b.queries {
		b.add(&b.queries[i])
	}
	switch {
	case len(b.requests) == 0:
		b.finish()
	case b.limiter.cfg.StopWhenOver:
		b.stopWhenOver()
	default:
		b.take()
	}
}

// add plans a query.
func (b *batch) add(q *Query) {
	b.plans = extend(b.plans)
	p := &b.plans[len(b.plans)-1]
	if p.begin(b.limiter, q, &b.keys); p.err != nil || len(p.limits) == 0 {
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

// take lets the store decide all requests at once.
func (b *batch) take() { b.limiter.cfg.Store.Start(b.ctx, b.requests, b.outcomes, b.took) }

// fallBack lets the policies of store errors answer the requests that the store could not decide.
func (b *batch) fallBack() {
	for i := range b.plans {
		p := &b.plans[i]
		if p.request < 0 {
			continue
		}
		switch o := &b.outcomes[p.request]; {
		case o.Err != nil:
			p.undecided(&b.requests[p.request], o, &b.local)
		case o.Source == bucket.FromDenialCache:
			p.source = FromDenialCache
		case o.Source == bucket.FromLease:
			p.source = FromLease
		}
	}
	if len(b.local.requests) == 0 {
		b.finish()
		return
	}
	b.local.start(b.ctx, b.limiter.cfg.Fallback, b.tookLocal)
}

// mergeLocal completes the outcomes by those of the fallback store.
func (b *batch) mergeLocal() {
	b.local.merge()
	b.finish()
}

// finish writes the results.
func (b *batch) finish() {
	for i := range b.plans {
		b.result(&b.plans[i], &b.results[i])
	}
	b.decided = true
	b.end(b.use.Load())
}

// result writes the result for the query of a plan.
func (b *batch) result(p *plan, res *Result) {
	switch {
	case p.err != nil:
		res.reset(0, 0)
		res.Err = p.err
	case p.request < 0: // no limit applies
		p.result(nil, &bucket.Outcome{Allowed: true}, res)
	default:
		p.result(b.requests[p.request].Takes, &b.outcomes[p.request], res)
	}
}

// end ends a use of the batch, if it has not ended yet. Only a batch without a panic is used again.
func (b *batch) end(use uint64) {
	if !b.use.CompareAndSwap(use, use+1) {
		return
	}
	if !b.decided {
		for i := range b.results {
			b.results[i] = Result{Err: ErrInternal}
		}
	}
	b.done()
	if b.decided {
		b.ctx, b.queries, b.results, b.done = nil, nil, nil, nil
		b.keys = texts.Reset(b.keys)
		b.limiter.batches.Put(b)
	}
}
