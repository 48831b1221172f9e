package service

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/internal/texts"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/envoy/unary"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// The methods of the native transport, as indexes of nativeMethods.
const (
	limitMethod = iota
	checkMethod
	healthMethod
	listMethod
	watchMethod
)

var nativeMethods = []string{
	limitMethod: rls.Method, checkMethod: auth.Method,
	healthMethod: grpc_health_v1.Health_Check_FullMethodName, listMethod: grpc_health_v1.Health_List_FullMethodName,
	watchMethod: grpc_health_v1.Health_Watch_FullMethodName,
}

// native answers the calls of the native transport (internal/h2unary).
type native struct {
	*services
	// waits means that a decision may wait for Redis. Then another goroutine than that which reads the connection answers.
	waits bool
	// margin is how much time a caller must have left for a decision by the timeouts of the store alone.
	margin  time.Duration
	batches sync.Pool // of *callBatch
}

func newNative(s *services) *h2unary.Server {
	n := &native{services: s, waits: s.settings.BackendType == "redis"}
	n.batches.New = func() any { return newCallBatch(n) }
	n.margin = s.settings.RedisTimeout + storeMargin
	if s.settings.PerSecond {
		n.margin = max(n.margin, s.settings.PerSecondTimeout+storeMargin)
	}
	return h2unary.New(h2unary.Config{
		Methods: nativeMethods, Streams: map[string]bool{nativeMethods[watchMethod]: true},
		Serve: n.serve, Panicked: func(value any) { s.bugs.caught("gRPC", value) }, Keep: s.traces.headers(),
		MaxStreams: s.settings.MaxStreams, MaxMessage: maxRequest,
		MaxAge: s.settings.MaxConnAge, MaxAgeGrace: s.settings.MaxConnGrace, ConnectTimeout: connectTimeout,
	})
}

// storeMargin is the part of a caller's deadline that remains for returning the answer of a store.
const storeMargin = 5 * time.Millisecond

// serve answers the calls of one read. Those of one method are decided together.
func (n *native) serve(c *h2unary.Conn, calls []*h2unary.Call) {
	var batches [checkMethod + 1]*callBatch // by method
	for _, k := range calls {
		switch k.Method {
		case limitMethod, checkMethod:
			if n.traces != nil {
				n.detach(c, k, string(k.Message))
				continue
			}
			if batches[k.Method] == nil {
				batches[k.Method] = n.newBatch(c, k.Method)
			}
			batches[k.Method].add(k, texts.View(k.Message))
		case healthMethod:
			askHealth(n, k, new(grpc_health_v1.HealthCheckRequest), n.health.Check)
		case listMethod:
			askHealth(n, k, new(grpc_health_v1.HealthListRequest), n.health.List)
		case watchMethod:
			n.watchHealth(c, k)
		}
	}
	for _, batch := range batches {
		switch {
		case batch == nil:
		case n.waits:
			n.decideInTime(batch)
		default:
			n.decide(context.Background(), batch)
		}
	}
}

// detach answers a call in a goroutine of its own, because it may have to wait.
func (n *native) detach(c *h2unary.Conn, k *h2unary.Call, request string) {
	answer := n.limits.Answer
	if k.Method == checkMethod {
		answer = n.check.Answer
	}
	n.run(c, k.Method, func() { n.answer(k, request, answer) })
}

// run answers calls in a goroutine, and sends the answers. A panic leaves its calls without an answer, but the process
// alive.
func (n *native) run(c *h2unary.Conn, method int, answer func()) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				n.bugs.caught(nativeMethods[method], p)
			}
		}()
		answer()
		runtime.Gosched() // calls that arrived together leave in one write
		c.Flush()
	}()
}

// answer answers one call.
func (n *native) answer(k *h2unary.Call, request string, answer unary.Answer) {
	ctx, method, end := k.Context(), nativeMethods[k.Method], func(codes.Code) {}
	if n.traces != nil {
		ctx, end = n.traces.begin(ctx, k)
	}
	reply, err := n.recovered(method, func() ([]byte, error) { return answer(ctx, request, nil) })
	end(n.reply(k, reply, err))
}

// recovered calls answer, and turns a panic into an error.
func (n *native) recovered(method string, answer func() ([]byte, error)) (reply []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			n.bugs.caught(method, p)
			err = wire.ErrInternal
		}
	}()
	return answer()
}

// reply sends an answer, and counts it.
func (n *native) reply(k *h2unary.Call, reply []byte, err error) codes.Code {
	return deliver(k, reply, err, n.calls.Of(nativeMethods[k.Method]), time.Now())
}

// deliver sends an answer, and counts it. The answers of a batch are counted together.
func deliver(k *h2unary.Call, reply []byte, err error, count *telemetry.Method, now time.Time) codes.Code {
	code, reason := codeOf(err)
	count.Observe(code, now.Sub(k.Arrived)) // first, because the answer ends the call
	if err == nil {
		k.Reply(reply)
	} else {
		k.Fail(code, reason)
	}
	return code
}

// codeOf returns the code of a call and its reason, as the package unary does.
func codeOf(err error) (codes.Code, string) {
	if err == nil {
		return codes.OK, ""
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return codes.Code(e.Code), err.Error()
	}
	s := status.FromContextError(err)
	return s.Code(), s.Message()
}

// headers returns the headers that the native transport keeps.
func (t *tracing) headers() []string {
	if t == nil {
		return nil
	}
	return t.Headers()
}

// begin starts the span of a call, which end ends.
func (t *tracing) begin(ctx context.Context, k *h2unary.Call) (_ context.Context, end func(codes.Code)) {
	ctx, span := t.Start(ctx, spanNames[nativeMethods[k.Method]], callCarrier{k, t.headers()})
	return ctx, func(code codes.Code) {
		span.SetAttributes(attribute.String("rpc.system", "grpc"), attribute.Int("rpc.grpc.status_code", int(code)))
		if code != codes.OK {
			span.SetStatus(otelcodes.Error, code.String())
		}
		span.End()
	}
}

// callCarrier reads the headers of a call.
type callCarrier struct {
	call *h2unary.Call
	keys []string
}

// Get implements propagation.TextMapCarrier.
func (c callCarrier) Get(key string) string { return c.call.Header(key) }

// Set implements propagation.TextMapCarrier. Nothing is called on behalf of a request.
func (c callCarrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (c callCarrier) Keys() []string { return slices.Clone(c.keys) }
