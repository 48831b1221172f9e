package nearstore

import (
	"context"
	"slices"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/ratelimit/bucket"
	"github.com/extauthz/extauthz/pkg/ratelimit/table"
)

// exchange is the requests of one call of Start, and what is noted of them until they are answered.
type exchange struct {
	store    *Store
	received func() // records the answers; made once
	now      int64  // the local time when it began

	// theirs are the outcomes of the caller's requests, and done is what the caller wants called.
	theirs []bucket.Outcome
	done   func()
	// What is sent: the requests of the caller that are not answered here, and those for catch-ups and leases. callers has
	// the index of each one among the caller's requests, -1 for another one. sentTakes are the takes of all but Dry ones.
	requests  []bucket.Request
	outcomes  []bucket.Outcome
	callers   []int
	sentTakes []sentTake

	suspects []*bucket.Take // whose server may have lost state
	newest   *bucket.Seen   // the newest answer that shows the clock of Redis

	known  []known         // room for what is known of the buckets of one request
	loaded []bucket.Loaded // room for their states
	room   [2]bucket.State // room for comparing states
	shown  bucket.Request  // room for a request that only shows its buckets
}

// sentTake is a take that was sent.
type sentTake struct {
	bucket handle
	take   *bucket.Take
	epoch  uint64 // when it was sent
	// known is the state when the take was sent, cut its bucket.Seen.Cut, heard the local time of the last answer.
	known bucket.State
	cut   bool
	heard int64
	// units are those that the take counts as unanswered.
	units int64
	// repays means that the take is a catch-up, and catchUp are the units that it charges.
	repays  bool
	catchUp int64
	// chunk are the units that are charged in advance, for a lease.
	chunk int64
}

func (b *exchange) begin(outcomes []bucket.Outcome, done func()) {
	b.theirs, b.done = outcomes, done
	b.now = b.store.now()
	b.callers, b.sentTakes, b.suspects = b.callers[:0], b.sentTakes[:0], b.suspects[:0]
	b.requests, b.outcomes = b.requests[:0], b.outcomes[:0]
}

// name names the buckets of a request in b.known, and makes room for their states in b.loaded.
func (b *exchange) name(r *bucket.Request) {
	b.loaded = slices.Grow(b.loaded[:0], len(r.Takes))[:len(r.Takes)]
	b.known = slices.Grow(b.known[:0], len(r.Takes))[:len(r.Takes)]
	for i := range r.Takes {
		b.known[i].handle = handle{key: b.store.table.Digest(r.Takes[i].Key), rule: r.Takes[i].Rule}
	}
}

// edit reads what is known of the buckets that b.known names, and calls change. It keeps what was written. No other
// call of edit has one of the buckets meanwhile.
func (b *exchange) edit(change func()) {
	t, shards := b.store.table, table.Set(0)
	for i := range b.known {
		t.Add(&shards, &b.known[i].key)
	}
	t.Lock(shards)
	defer t.Unlock(shards)
	for i := range b.known {
		b.known[i].read(t.Shard(&b.known[i].key))
	}
	change()
	for i := range b.known {
		if k := &b.known[i]; k.changed {
			k.keep(t.Shard(&k.key), b.store)
		}
	}
}

// know returns what is known of the bucket of take i. A bucket that was never seen starts full.
func (b *exchange) know(i int, t *bucket.Take) *known {
	k := &b.known[i]
	if !k.found {
		k.limit, k.ahead, k.epoch = t.Limit, b.store.ahead.Load(), b.store.shared.Epoch(t)
	}
	return k
}

// look answers request i if leases cover it or if it is certainly denied. Otherwise it prepares what is sent.
func (b *exchange) look(i int, r *bucket.Request, o *bucket.Outcome) {
	b.name(r)
	b.edit(func() {
		if b.fromLease(r, o) || b.store.caches && b.denied(r, o) {
			return
		}
		if r.Dry {
			b.askDry(r)
			b.add(*r, i)
			return
		}
		for k := range r.Takes {
			b.catchUp(r.At, &r.Takes[k], &b.known[k])
		}
		b.add(*r, i)
		for k := range r.Takes {
			t := &r.Takes[k]
			b.ask(t, b.know(k, t), sentTake{units: int64(t.Claims())})
		}
		b.renew(r)
	})
}

// ask notes a take that is about to be sent, with its units in a. It gets a floor if Redis may have lost its bucket.
func (b *exchange) ask(t *bucket.Take, k *known, a sentTake) {
	a.bucket, a.take = k.handle, t
	if t.Limit.Requests > 0 { // a closed bucket is not read
		a.epoch = b.store.shared.Epoch(t)
		a.known, a.cut, a.heard = *k.shown(), k.cut, k.heard
		if k.needsFloor(a.epoch) {
			t.Floor = k.floor()
			b.store.counts.floors.Add(1)
		}
		if t.Refund > 0 {
			k.confirmed = false
		}
		if k.holds != nil && t.Hold != nil {
			k.holds.settles(t, true)
		}
		k.unanswered += a.units
		k.write(b.now, drained(&k.limit, &k.state, b.now+k.ahead))
	}
	b.sentTakes = append(b.sentTakes, a)
}

// catchUp adds a request that charges what the bucket of a take still owes.
func (b *exchange) catchUp(at int64, t *bucket.Take, k *known) {
	if k.debt == nil || k.flying > 0 || t.Limit.Requests == 0 {
		return
	}
	units := k.owes(k.low(at, b.now))
	if t.Limit.Algorithm.Resets() { // nothing, if the window of the units may be over
		units = min(units, k.owes(k.high(at, b.now)))
	}
	if units == 0 && !k.holds.owed() {
		return
	}
	k.flying = units
	charge := bucket.Take{
		Key: t.Key, Rule: t.Rule, Limit: wide(k.debt.room(t.Limit)), Cost: uint64(units), Role: bucket.Shadow,
		CountDenied: true, Hold: k.holds.repay(t.Hold),
	}
	b.addOwn(at, charge, k, sentTake{repays: true, catchUp: units})
}

// add adds a request to what is sent. caller is its index if it is the caller's, else -1.
func (b *exchange) add(r bucket.Request, caller int) {
	b.callers = append(b.callers, caller)
	b.requests = append(b.requests, r)
}

// addOwn adds a request of one take that is not the caller's.
func (b *exchange) addOwn(at int64, t bucket.Take, k *known, a sentTake) {
	r := bucket.Request{At: at, Takes: []bucket.Take{t}}
	b.add(r, -1)
	b.ask(&r.Takes[0], k, a)
}

// send sends what was prepared. The batch ends when it is answered.
func (b *exchange) send(ctx context.Context) {
	if len(b.requests) == 0 {
		b.end()
		return
	}
	b.outcomes = slices.Grow(b.outcomes, len(b.requests))[:len(b.requests)]
	for n, caller := range b.callers {
		if caller >= 0 {
			b.outcomes[n] = b.theirs[caller] // for its memory
		}
	}
	b.store.shared.Start(ctx, b.requests, b.outcomes, b.received)
}

// receive records the answers, and gives the caller its outcomes.
func (b *exchange) receive() {
	b.recordAll()
	for n, caller := range b.callers {
		if caller >= 0 {
			b.theirs[caller], b.outcomes[n] = b.outcomes[n], bucket.Outcome{}
		}
	}
	b.end()
}

// recordAll records what the answers show. The caller gets its outcomes also after a panic.
func (b *exchange) recordAll() {
	defer ratelimit.Caught(b.store.panicked)
	rest := b.sentTakes
	for n := range b.requests {
		r, o := &b.requests[n], &b.outcomes[n]
		if r.Dry {
			b.answerDry(r, o)
			continue
		}
		b.record(rest[:len(r.Takes)], r, o)
		rest = rest[len(r.Takes):]
	}
	for i := range b.sentTakes {
		b.sentTakes[i].take.Floor = nil
	}
	if b.newest != nil { // once a batch: all processors share it
		b.store.ahead.Store(b.newest.Clock - b.store.local(b.newest.Received))
	}
	for _, t := range b.suspects {
		b.store.shared.Suspect(t)
	}
}

// end calls done. Then the batch may be used again.
func (b *exchange) end() {
	b.done()
	b.release()
	b.store.exchanges.Put(b)
}

// mostKept is how many takes a batch may have for its memory to be kept. More are rare.
const mostKept = 1024

// release drops all that the batch refers to, and keeps its memory unless that is large.
func (b *exchange) release() {
	if cap(b.sentTakes) > mostKept || cap(b.known) > mostKept {
		*b = exchange{store: b.store, received: b.received}
		return
	}
	b.theirs, b.done = nil, nil
	b.newest = nil
	clear(b.sentTakes)
	clear(b.suspects)
	clear(b.requests)
	clear(b.outcomes)
	clear(b.shown.Takes)
}
