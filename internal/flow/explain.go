package flow

import (
	"context"
	"time"

	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

// Decided is a call with all that the flow knows of its decision.
type Decided struct {
	// Query is the query for the limiter, and Result its answer. Both are nil if no limit was asked.
	Query  *ratelimit.Query
	Result *ratelimit.Result
	// Pending is that of a check, nil for the rate limit service.
	Pending *authz.Pending
	// Reply is the answer to Envoy, unless there is an Err. Delay is how long it is held.
	Reply []byte
	Delay time.Duration
	Err   error
}

// Decide decides a message of a method. The deadline of ctx is that of the caller. The answer is not held.
func (f *Flow) Decide(ctx context.Context, m Method, message string) *Decided {
	b := f.newSingle(ctx)
	b.keep = true // the caller keeps what was decided
	c := b.add(m, message)
	c.deadline, _ = ctx.Deadline()
	b.wait()
	defer b.release()
	if c.delay > 0 && !f.dry {
		f.cfg.Queue.Leave(c.places)
	}
	d := &Decided{Query: c.query, Reply: c.reply, Delay: c.delay, Err: c.err}
	if c.query != nil {
		d.Result = &c.result
	}
	if m == Check && c.check.request != nil {
		d.Pending = &c.check.pending
	}
	return d
}
