package flow

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/authz"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Method is one of the two questions of Envoy.
type Method int

// The methods, as indexes of Methods.
const (
	RateLimit Method = iota
	Check
)

// Methods are the full names of the methods.
var Methods = [...]string{RateLimit: rls.Method, Check: auth.Method}

// Authorizer is *authz.Authorizer. Begin and BeginNow decide everything but the limits. Finish adds the limits.
type Authorizer interface {
	Begin(ctx context.Context, r *authz.Request, p *authz.Pending)
	BeginNow(r *authz.Request, p *authz.Pending) (begun bool)
	Finish(p *authz.Pending, res *ratelimit.Result)
}

// Config are the parts that a request passes.
type Config struct {
	// Limiter decides limits. Required.
	Limiter *ratelimit.Limiter
	// Authorizer decides everything else of a check. Required for checks.
	Authorizer Authorizer
	// RateLimit writes the responses of the rate limit service.
	RateLimit rls.Codec
	// HTTP are the settings of checks over HTTP. Required for them.
	HTTP HTTPConfig
	// Queue holds answers (max_delay). Required.
	Queue *Queue
	// Patience is how long the store may take. A caller with less time is decided apart from the others, before its
	// deadline. 0 means that the store never waits, so that all calls of a read are decided together.
	Patience time.Duration
	// Other answers the calls of all other methods of the native transport. Required for it, if it has any.
	Other func(conn *h2unary.Conn, k *h2unary.Call)
	// Calls counts and times calls. Required.
	Calls *telemetry.Calls
	// Log receives the decisions. nil for no log.
	Log *telemetry.DecisionLog
	// Traces makes the spans. nil for no traces.
	Traces *telemetry.Tracing
	// Panicked is called with the value of a panic, in the deferred function that recovered, so that the stack is that of
	// the panic. where is a method. Required.
	Panicked func(where string, value any)
}

// Flow decides calls. It is safe for concurrent use. Use New.
type Flow struct {
	cfg     Config
	counts  [len(Methods)]func() *telemetry.Method
	batches sync.Pool // of *batch
	dropped atomic.Uint64
	peek    func(context.Context, ratelimit.Query) *ratelimit.Result // Pending.Peek
	dry     bool                                                     // see Dry
	// overHTTP runs on the first check over HTTP, noAddress on the first whose decision depends on an unknown address.
	overHTTP, noAddress sync.Once
}

// New returns a flow.
func New(cfg Config) *Flow {
	f := &Flow{cfg: cfg}
	f.peek = func(ctx context.Context, q ratelimit.Query) *ratelimit.Result {
		results := make([]ratelimit.Result, 1)
		cfg.Limiter.DecideAll(ctx, []ratelimit.Query{q}, results)
		return &results[0]
	}
	for m, name := range Methods {
		f.counts[m] = sync.OnceValue(func() *telemetry.Method { return cfg.Calls.Of(name) })
	}
	f.batches.New = func() any {
		b := &batch{flow: f, ended: make(chan struct{}, 1)}
		b.resume, b.rounds.At = b.resumed, &b.began
		return b
	}
	return f
}

// Dry returns a flow that decides as f does now, and changes nothing (ratelimit.Limiter.Dry). a is a Dry authorizer.
func (f *Flow) Dry(a Authorizer) *Flow {
	cfg := f.cfg
	cfg.Limiter, cfg.Authorizer, cfg.Log, cfg.Traces = cfg.Limiter.Dry(), a, nil, nil
	dry := New(cfg)
	dry.dry = true
	return dry
}

// DroppedHeaders returns how many headers of checks could not be sent because of their name or value.
func (f *Flow) DroppedHeaders() uint64 { return f.dropped.Load() }

// Serve decides the calls of one read of a connection. The methods of the transport begin with Methods. Serve does not
// wait: if a decision has to, another goroutine answers the call. The calls that the store may delay are decided
// together, so that no caller ends the wait of the others. Callers with less time are decided apart.
func (f *Flow) Serve(conn *h2unary.Conn, calls []*h2unary.Call) {
	var soon time.Time
	now := conn.ReadAt() // spares a look at the clock
	if f.cfg.Patience > 0 {
		soon = now.Add(f.cfg.Patience + ratelimit.DeadlineReserve)
	}
	var patient, hurried *batch
	for _, k := range calls {
		switch d := k.Deadline; {
		case k.Method >= len(Methods):
			f.cfg.Other(conn, k)
		case d.IsZero() || d.After(soon): // always, if the store never waits
			if patient == nil {
				patient = f.newBatch(conn)
				patient.began = now
			}
			patient.read(k)
		default:
			if hurried != nil && !d.Equal(hurried.calls[0].deadline) { // it is equal for most calls of one read
				hurried.start()
				hurried = nil
			}
			if hurried == nil {
				hurried = f.newBatch(conn)
				hurried.began = now
				hurried.ctx, hurried.cancel = context.WithDeadline(hurried.ctx, d)
			}
			hurried.read(k)
		}
	}
	if hurried != nil {
		hurried.start()
	}
	if patient != nil {
		patient.start()
	}
}

// protected runs a step of requests. It reports a panic, with the method as it is then, and returns false.
func (f *Flow) protected(m *Method, step func()) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			f.cfg.Panicked(Methods[*m], p)
			ok = false
		}
	}()
	step()
	return true
}
