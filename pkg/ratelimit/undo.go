package ratelimit

import (
	"context"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Undo removes the holds that a query has reserved, once: its caller does not get the answer, so nothing settles them.
type Undo struct {
	limiter  *Limiter
	store    Store
	domain   string
	request  bucket.Request
	outcomes [1]bucket.Outcome
	counters []*Counters // of the takes
}

// Undo returns what removes the holds that the query has reserved, nil for none. Call it after Finish has returned
// true, before the rounds go on. It refers to nothing of the plan and the rounds.
func (p *Plan) Undo(r *Rounds) *Undo {
	if p.stage != taking && p.stage != takingLocally || p.err != nil || p.limiter.dry {
		return nil
	}
	var u *Undo
	takes, decisions := r.now.requests[p.request].Takes, r.now.outcomes[p.request].Decisions
	for i := range decisions { // none if no store has decided
		t, held := &takes[i], decisions[i].Held
		if held == nil || held.Until == 0 {
			continue
		}
		if u == nil {
			u = &Undo{limiter: p.limiter, store: p.limiter.cfg.Store, domain: strings.Clone(p.query.Domain)}
			if r.now.local {
				u.store = p.limiter.cfg.Fallback
			}
		}
		u.request.Takes = append(u.request.Takes, bucket.Take{
			Key: strings.Clone(t.Key), Rule: t.Rule, Limit: t.Limit, Role: bucket.Shadow, Hold: t.Hold.Undo(held.Until),
		})
		u.counters = append(u.counters, p.countersOfTake(i))
	}
	return u
}

// countersOfTake returns the counters of the limit with a take of this round. Of several limits, the first counts.
func (p *Plan) countersOfTake(take int) *Counters {
	if p.local != nil {
		take = p.local.index[take]
	}
	for _, a := range p.limits {
		if a.take == take && a.hold != nil {
			c, _ := p.countersOf(&a)
			return c
		}
	}
	return &p.limiter.totals.RequestLimits
}

// mostUndos bounds the requests to a store that undo holds at the same time.
const mostUndos = 1024

// Start removes the holds, and does not wait for that. If the store does not, or if too many calls end at once, the
// holds end by their ttl.
func (u *Undo) Start() {
	l := u.limiter
	if l.undos.Add(1) > mostUndos {
		l.undos.Add(-1)
		l.totals.NotUndone.Add(1)
		return
	}
	u.store.Start(context.Background(), []bucket.Request{u.request}, u.outcomes[:], u.done)
}

func (u *Undo) done() {
	l, o, removed := u.limiter, &u.outcomes[0], 0
	l.undos.Add(-1)
	if o.Err != nil {
		l.totals.NotUndone.Add(1)
	}
	for i := range o.Decisions {
		if held := o.Decisions[i].Held; held != nil {
			u.counters[i].Undone.Add(uint64(held.Settled))
			removed += held.Settled
		}
	}
	if l.cfg.Undone != nil {
		l.cfg.Undone(u.domain, removed, o.Err)
	}
}
