package service

import (
	"context"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpchealth "google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/envoy/auth"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// healthNames are the services of grpc.health.v1: all, the name in envoyproxy/ratelimit, and the full names.
var healthNames = []string{"", "ratelimit", rls.ServiceName, auth.ServiceName}

// health reports whether this replica accepts requests: while all conditions hold, and never after Shutdown.
type health struct {
	*grpchealth.Server

	mu      sync.Mutex
	missing map[condition]bool
}

// condition is something that a replica needs to accept requests.
type condition string

const (
	rulesActive  condition = "rules are active"
	redisAnswers condition = "Redis answers"
)

// newHealth returns a health that reports SERVING.
func newHealth() *health {
	return &health{Server: grpchealth.NewServer(), missing: map[condition]bool{}}
}

// set records whether a condition holds, and sets the state of all services to SERVING or NOT_SERVING.
func (h *health) set(c condition, holds bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if delete(h.missing, c); !holds {
		h.missing[c] = true
	}
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if len(h.missing) == 0 {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	for _, name := range healthNames {
		h.SetServingStatus(name, status)
	}
}

func (h *health) serveReady(w http.ResponseWriter, r *http.Request) {
	if !h.accepts(r.Context()) {
		http.Error(w, "not ready", http.StatusInternalServerError) // 500, as at envoyproxy/ratelimit
		return
	}
	_, _ = w.Write([]byte("OK\n")) // an error means that the client is gone
}

// accepts reports whether the replica accepts requests.
func (h *health) accepts(ctx context.Context) bool {
	all, err := h.Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	return err == nil && all.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
}

// nativeMethods are all methods of the native transport. Those of the flow come first.
var nativeMethods = append(flow.Methods[:len(flow.Methods):len(flow.Methods)],
	grpc_health_v1.Health_Check_FullMethodName, grpc_health_v1.Health_List_FullMethodName,
	grpc_health_v1.Health_Watch_FullMethodName)

// answerHealth answers a call of grpc.health.v1 on the native transport.
func (r *requests) answerHealth(c *h2unary.Conn, k *h2unary.Call) {
	switch nativeMethods[k.Method] {
	case grpc_health_v1.Health_Check_FullMethodName:
		askHealth(r.calls, k, new(grpc_health_v1.HealthCheckRequest), r.ready.Check)
	case grpc_health_v1.Health_List_FullMethodName:
		askHealth(r.calls, k, new(grpc_health_v1.HealthListRequest), r.ready.List)
	case grpc_health_v1.Health_Watch_FullMethodName:
		r.ready.watch(c, k)
	}
}

// askHealth answers a call whose request and response are one message each.
func askHealth[Request, Response proto.Message](
	calls *telemetry.Calls, k *h2unary.Call, req Request, ask func(context.Context, Request) (Response, error),
) {
	reply, err := func() ([]byte, error) {
		if err := proto.Unmarshal(k.Message, req); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		res, err := ask(context.Background(), req)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(res)
	}()
	state := status.Convert(err)
	calls.Of(nativeMethods[k.Method]).Observe(state.Code(), time.Since(k.Arrived))
	if err != nil {
		k.Fail(state.Code(), state.Message())
		return
	}
	k.Reply(reply)
}

// watch answers grpc.health.v1.Health/Watch: a message for each change, until the client or the server ends it.
func (h *health) watch(c *h2unary.Conn, k *h2unary.Call) {
	req := new(grpc_health_v1.HealthCheckRequest)
	if err := proto.Unmarshal(k.Message, req); err != nil {
		k.Fail(codes.Internal, err.Error())
		return
	}
	stream := &watchStream{conn: c, call: k, ctx: k.Context()}
	go func() {
		_ = h.Watch(req, stream) // it ends with the context, or if Send fails
		k.Fail(codes.Unavailable, "the stream has ended")
		c.Flush()
	}()
}

// watchStream is the grpc_health_v1.Health_WatchServer of a call. Watch uses only Send and Context.
type watchStream struct {
	grpc.ServerStream
	conn *h2unary.Conn
	call *h2unary.Call
	ctx  context.Context
}

func (w *watchStream) Context() context.Context { return w.ctx }

func (w *watchStream) Send(res *grpc_health_v1.HealthCheckResponse) error {
	message, err := proto.Marshal(res)
	if err != nil {
		return err
	}
	if !w.call.Send(message) {
		return context.Canceled
	}
	w.conn.Flush()
	return nil
}
