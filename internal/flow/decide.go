package flow

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/reply"
	"github.com/extauthz/extauthz/pkg/wire"
)

var (
	// errInternal is the answer to a call that has caused a panic.
	errInternal = &wire.Error{Code: wire.Internal, Reason: "internal error"}
	// errNotHeld is the answer to a request that may pass later but cannot wait: the queue is full, or the time is over.
	errNotHeld = &wire.Error{Code: wire.Unavailable, Reason: "the answer cannot be held for max_delay"}
)

// start begins each call, and lets the store decide all of them. The batch must not be used after that, because it may
// be answered already, or be answered by a goroutine of the store.
func (b *batch) start() {
	b.each(b.begin)
	if apart := b.apart; apart != nil {
		b.apart = nil
		apart.start()
	}
	b.ask()
}

// each does a step of each call that is not answered. A call whose step panics fails alone.
func (b *batch) each(step func(c *call)) {
	for i := 0; i < len(b.calls); i++ {
		mark, method := b.rounds.Mark(), b.calls[i].method
		ok := b.flow.protected(&method, func() { // once for all, unless one panics
			for ; i < len(b.calls); i++ {
				if c := b.calls[i]; !c.answered {
					mark, method = b.rounds.Mark(), c.method
					step(c)
				}
			}
		})
		if !ok {
			b.rounds.Undo(mark)
			b.fail(b.calls[i])
		}
	}
}

// begin reads a call, and plans its request to the store.
func (b *batch) begin(c *call) {
	if c.method == Check {
		b.beginCheck(c)
	} else if c.err = b.parts.Unmarshal(c.message, &c.limit); c.err == nil {
		if mayEnd := b.mayWait || b.cancel != nil; mayEnd && settles(&c.limit) && b.settleApart(c) {
			return
		}
		c.query = &c.limit
		c.query.MaxHold = b.mostHold(c).Microseconds()
	}
	if c.query != nil {
		b.flow.cfg.Limiter.Plan(c.query, &c.plan, &b.rounds)
	}
}

// ask lets the store decide the current round. It goes on at once if there is nothing to decide.
func (b *batch) ask() {
	if b.rounds.Len() == 0 {
		b.finish()
		return
	}
	if b.flow.cfg.Traces != nil {
		b.sent = time.Now()
	}
	turn := b.turn.Add(1)
	method := b.calls[0].method // of one of the calls: which one has caused a panic is not known
	ok := b.flow.protected(&method, func() { b.flow.cfg.Limiter.Start(b.ctx, &b.rounds, b.resume) })
	if !ok && b.turn.CompareAndSwap(turn, turn+1) {
		b.keep = true
		b.finish()
	}
}

// resumed goes on with the batch when the store has decided a round.
func (b *batch) resumed() {
	turn := b.turn.Load()
	if turn%2 == 0 || !b.turn.CompareAndSwap(turn, turn+1) {
		return // ask goes on, after a panic
	}
	if b.flow.cfg.Traces != nil {
		b.storing += time.Since(b.sent)
	}
	b.finish()
}

// finish answers the calls whose decision is complete. If a call needs one more round, the store decides that.
func (b *batch) finish() {
	var now time.Time
	if b.conn != nil { // else the caller counts its call
		now = time.Now()
	}
	b.each(func(c *call) { b.finishCall(c, now) })
	if b.rounds.Next() {
		b.ask()
		return
	}
	b.end()
}

// finishCall answers a call, unless it needs one more round.
func (b *batch) finishCall(c *call, now time.Time) {
	if c.err == nil && c.query != nil {
		if !b.flow.cfg.Limiter.Finish(&c.plan, &b.rounds, &c.result) {
			return
		}
		if c.result.Err == ratelimit.ErrUnanswered { //nolint:errorlint // the limiter returns exactly this value
			c.err = errInternal
		}
	}
	if c.err == nil {
		b.answer(c)
	}
	c.plan.LeavePlaces()
	b.deliver(c, now)
}

// answer makes the reply of a call that is decided, and reports the decision. The next answer overwrites the reply.
func (b *batch) answer(c *call) {
	if c.plan.UsesStore() {
		c.span.StoreTime(b.storing)
	}
	if c.method == Check {
		b.answerCheck(c)
		b.out = c.check.answer.Append(b.out[:0])
	} else {
		if b.answerLimit(c); c.err != nil {
			return
		}
		b.out = b.flow.cfg.RateLimit.AppendResponse(b.out[:0], c.query, &c.result, &b.headers)
	}
	c.reply = b.out
}

// answerLimit reports a decision of the rate limit service, and takes a place in the queue if its answer is held.
func (b *batch) answerLimit(c *call) {
	f := b.flow
	if f.cfg.Log != nil {
		f.cfg.Log.RateLimit(c.query, &c.result)
	}
	if c.span.Recording() {
		c.span.RateLimit(c.query, &c.result)
	}
	if c.err = rls.Undecided(&c.result); c.err != nil {
		return
	}
	if !b.enter(c, c.result.Delay) {
		c.err = errNotHeld
	}
}

// enter takes a place in the queue for an answer that is held for a delay in µs. It returns false if there is none: the
// request does not pass then.
func (b *batch) enter(c *call, micros int64) bool {
	f, delay := b.flow, time.Duration(micros)*time.Microsecond
	switch {
	case delay == 0:
	case f.dry:
		c.delay = delay
	default:
		if !f.cfg.Queue.Enter(c.deadline, delay) {
			f.undo(c.method, b.leave(c))
			return false
		}
		c.delay, c.places = delay, c.plan.KeepPlaces()
	}
	return true
}

// mostHold returns how long the answer to a call can be held: not at all without a deadline, because such a caller has
// not stated that it waits. Reading the clock costs as much as a take in memory, so it is read for a deadline only.
func (b *batch) mostHold(c *call) time.Duration {
	if c.deadline.IsZero() {
		return 0
	}
	return b.flow.cfg.Queue.Most(c.deadline.Sub(b.now()))
}

// beginCheck reads a check, and decides everything but its limits.
func (b *batch) beginCheck(c *call) {
	check, f := c.check, b.flow
	if check.request == nil { // not over HTTP
		if c.err = check.message.Unmarshal(c.message); c.err != nil {
			return
		}
		check.request = &check.message.Request
	}
	if c.err = b.ctx.Err(); c.err == nil && !c.deadline.IsZero() && !b.now().Before(c.deadline) {
		c.err = context.DeadlineExceeded
	}
	if c.err != nil { // do not charge a request whose caller no longer waits
		return
	}
	check.request.MaxHold = b.mostHold(c)
	if b.mayWait {
		check.pending.Peek = f.peek
		f.cfg.Authorizer.Begin(b.ctx, check.request, &check.pending)
	} else if !f.cfg.Authorizer.BeginNow(check.request, &check.pending) {
		f.beginLater(b.conn, c)
		return
	}
	if len(check.pending.Query.Descriptors) > 0 {
		c.query = &check.pending.Query
	}
}

// answerCheck completes the decision on a check, takes a place in the queue if its answer is held, and reports it.
func (b *batch) answerCheck(c *call) {
	f, check := b.flow, c.check
	var res *ratelimit.Result
	if c.query != nil {
		res = &c.result
	}
	f.cfg.Authorizer.Finish(&check.pending, res)
	d := &check.pending.Decision
	if d.Verdict == authz.Allowed && !b.enter(c, d.Delay) {
		late(d)
	}
	check.answer.Decide(check.request, d)
	if n := check.answer.Dropped; n > 0 {
		f.dropped.Add(uint64(n))
	}
	if f.cfg.Log == nil && !c.span.Recording() {
		return
	}
	checked := authz.Checked{
		Request: check.request, Decision: d, Query: c.query, Result: res,
		Status: check.answer.Status, DroppedHeaders: check.answer.Dropped, Took: time.Since(b.began) + c.delay,
	}
	if f.cfg.Log != nil {
		f.cfg.Log.Check(&checked)
	}
	if c.span.Recording() {
		c.span.Check(&checked)
	}
}

// late makes the decision an undecided one, because it came too late.
func late(d *authz.Decision) {
	*d = authz.Decision{
		Verdict: authz.Undecided, Reason: reply.ReasonUndecided,
		Domain: d.Domain, Identity: d.Identity, Limits: d.Limits, Delay: d.Delay,
	}
}
