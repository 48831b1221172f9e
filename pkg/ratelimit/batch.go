package ratelimit

import (
	"context"

	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// batch holds the queries of one call of Limiter.Start while they are decided:
//
//	decide -> Config.Store -> fallBack -> finish -> done
//	                                  \-> Config.Fallback -> mergeLocal -> finish -> done
//
// A store may call fallBack and mergeLocal in another goroutine. A batch is used again for other queries, so that a
// decision allocates little more than its result.
type batch struct {
	limiter *Limiter
	// took and tookLocal are fallBack and mergeLocal, for the stores. They are made once.
	took, tookLocal func()

	// What follows is of one call.
	ctx     context.Context
	queries []Query
	results []Result
	done    func() // nil once it is called

	plans []plan // one for each query
	// requests belong to the plans that have limits.
	requests []bucket.Request
	outcomes []bucket.Outcome
	keys     []byte // of the takes of all requests
	local    fallback
}

func newBatch(l *Limiter) *batch {
	b := &batch{limiter: l}
	b.took, b.tookLocal = b.fallBack, b.mergeLocal
	return b
}

// decide finds the limits of all queries, and lets the store decide them at once.
func (b *batch) decide() {
	defer b.recovered()
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

// recovered is deferred by each function that runs a step of the batch. After a panic, it ends the batch, unless the
// panic is one of done. The panic goes on, and the batch is not used again.
func (b *batch) recovered() {
	p := recover()
	if p == nil {
		return // the batch may be in use for other queries now
	}
	if b.done != nil {
		for i := range b.results {
			b.results[i] = Result{Err: ErrInternal}
		}
		b.end()
	}
	panic(p)
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
	p.ask(&b.requests[p.request])
}

// extend returns the slice with one more element, which may have the memory of an earlier batch.
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
	defer b.recovered()
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
	defer b.recovered()
	b.local.merge()
	b.finish()
}

// finish writes the results, and ends the batch. Then it may be used again.
func (b *batch) finish() {
	for i := range b.plans {
		b.result(&b.plans[i], &b.results[i])
	}
	b.end()
	b.release()
	b.limiter.batches.Put(b)
}

// end calls done, once.
func (b *batch) end() {
	done := b.done
	b.done = nil
	done()
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

// release drops all that the batch refers to, also rules that are no longer active. It keeps its memory for other
// queries, but not that of a large request.
func (b *batch) release() {
	for i := range b.plans {
		b.plans[i].release()
	}
	for i := range b.requests {
		r, o := &b.requests[i], &b.outcomes[i]
		*r = bucket.Request{Takes: texts.Clear(r.Takes)}
		*o = bucket.Outcome{Decisions: texts.Clear(o.Decisions), Seen: texts.Clear(o.Seen)}
	}
	b.plans, b.requests, b.outcomes = b.plans[:0], b.requests[:0], b.outcomes[:0]
	b.ctx, b.queries, b.results = nil, nil, nil
	b.keys, b.local = texts.Reset(b.keys), fallback{}
}
