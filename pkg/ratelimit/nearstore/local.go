package nearstore

import (
	"context"
	"strings"

	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
)

// Local decides from the last known states, for requests that the shared store could not decide. It is a
// ratelimit.Store, and never fails.
type Local struct{ store *Store }

// Local returns the store that decides without Redis.
func (s *Store) Local() *Local { return &Local{s} }

// Start implements ratelimit.Store. It calls done before it returns.
func (l *Local) Start(_ context.Context, requests []bucket.Request, outcomes []bucket.Outcome, done func()) {
	b := l.store.exchanges.Get().(*exchange)
	b.begin(outcomes, done)
	for i := range requests {
		b.decide(&requests[i], &outcomes[i])
	}
	b.end()
}

// decide decides a request from what is known of its buckets at the earliest T.
func (b *exchange) decide(r *bucket.Request, o *bucket.Outcome) {
	b.name(r)
	b.edit(func() {
		b.now = b.store.now() // under the lock: a bucket must not move back
		t := r.At
		for i := range r.Takes {
			k := b.know(i, &r.Takes[i])
			k.divide(r.At, b.now, b.store.replicas.Load())
			if !r.Dry {
				b.expireHolds(k, &r.Takes[i], k.low(r.At, b.now))
			}
			if r.At == 0 && (i == 0 || b.now+k.ahead < t) {
				t = b.now + k.ahead
			}
		}
		b.judge(r, o, t)
		o.Origin = bucket.FromLastKnown
		b.charge(r, o)
	})
}

// judge decides the request as if the takes on the wire were charged.
func (b *exchange) judge(r *bucket.Request, o *bucket.Outcome, t int64) {
	for i := range r.Takes {
		k := &b.known[i]
		s := k.state.Clone()
		hold := r.Takes[i].Hold
		if hold != nil {
			s.Holds = k.counted(t + hold.TTL)
		} else {
			s.Charge(&r.Takes[i].Limit, t, k.unanswered)
		}
		b.loaded[i] = bucket.Loaded{State: s, Full: r.Takes[i].Reserves() && b.store.table.Full(1, b.store.maxHolds)}
	}
	if r.Dry {
		r.DecideDry(t, b.loaded, o)
		return
	}
	r.Decide(t, b.loaded, o)
}

// charge charges the buckets of a decided request. Each unit counts once for every replica.
func (b *exchange) charge(r *bucket.Request, o *bucket.Outcome) {
	for i := range r.Takes {
		take, d := &r.Takes[i], &o.Decisions[i]
		units := take.Charged(d.Allowed, o.Allowed)
		if r.Uncertain && !o.Allowed {
			units = 0 // Redis may have charged the denial, or will
		}
		k := &b.known[i]
		t := k.low(r.At, b.now) // its own: at the time of another bucket it would move back, and later forward again
		held := take.Hold != nil && take.Limit.Requests > 0 && !r.Dry && b.hold(r, i, d)
		if held {
			units += settled(take)
		}
		var refund uint64
		if !r.Uncertain { // otherwise Redis may have given it back
			refund = k.refund(take.Refund, t)
		}
		if take.Limit.Requests == 0 || units == 0 && refund == 0 && !held {
			continue
		}
		before, n := k.state, b.store.replicas.Load()
		if k.debt != nil {
			n = k.debt.replicas
		}
		effect := bucket.Request{At: t, Takes: []bucket.Take{{
			Limit: roomFor(n*units, take.Limit, &k.state, t), Cost: uint64(n * units), Refund: refund,
			ChargedAt: take.ChargedAt, Role: bucket.Shadow, CountDenied: true,
		}}}
		near := []bucket.Loaded{{State: k.state.Clone()}}
		var after bucket.Outcome
		effect.Decide(t, near, &after)
		if near[0].Changed { // a hold that begins or ends moves no bucket to another time
			k.state = near[0].State
		}
		if n > 1 {
			d.Remaining = max(0, take.Capacity()-k.state.Used(&take.Limit, t)-k.unanswered-k.holds.units(n))
		}
		if r.Dry {
			continue
		}
		if k.debt == nil {
			k.debt = &debt{base: before, replicas: n}
		}
		k.debt.take = bucket.Take{
			Key: strings.Clone(take.Key), Rule: take.Rule, Limit: k.debt.room(take.Limit), Hold: take.Hold.Terms(),
		}
		k.limit = take.Limit
		if r.Uncertain {
			k.uncertain(t, units)
			b.store.counts.uncertain.Add(uint64(units))
		}
		if k.clock == 0 {
			k.clock = t
		}
		b.store.counts.admitted.Add(uint64(units))
		b.store.owe(k)
		k.write(b.now, after.Decisions[0].ResetAfter)
	}
}
