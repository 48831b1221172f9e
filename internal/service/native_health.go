package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// The methods of grpc.health.v1 on the native transport, as indexes of nativeMethods.
const (
	healthMethod = len(flow.Methods) + iota
	listMethod
	watchMethod
)

// nativeMethods are all methods of the native transport. Those of the flow come first.
var nativeMethods = append(flow.Methods[:len(flow.Methods):len(flow.Methods)],
	grpc_health_v1.Health_Check_FullMethodName, grpc_health_v1.Health_List_FullMethodName,
	grpc_health_v1.Health_Watch_FullMethodName)

// nativeHealth answers the calls of grpc.health.v1 on the native transport.
type nativeHealth struct {
	health *health
	calls  *telemetry.Calls
}

// answer answers a call.
func (n nativeHealth) answer(c *h2unary.Conn, k *h2unary.Call) {
	switch k.Method {
	case healthMethod:
		askHealth(n, k, new(grpc_health_v1.HealthCheckRequest), n.health.Check)
	case listMethod:
		askHealth(n, k, new(grpc_health_v1.HealthListRequest), n.health.List)
	case watchMethod:
		n.watch(c, k)
	}
}

// askHealth answers a call whose request and response are one message each.
func askHealth[Request, Response proto.Message](
	n nativeHealth, k *h2unary.Call, req Request, ask func(context.Context, Request) (Response, error),
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
	n.calls.Of(nativeMethods[k.Method]).Observe(state.Code(), time.Since(k.Arrived))
	if err != nil {
		k.Fail(state.Code(), state.Message())
		return
	}
	k.Reply(reply)
}

// watch answers grpc.health.v1.Health/Watch: a message for each change, until the client or the server ends it.
func (n nativeHealth) watch(c *h2unary.Conn, k *h2unary.Call) {
	req := new(grpc_health_v1.HealthCheckRequest)
	if err := proto.Unmarshal(k.Message, req); err != nil {
		k.Fail(codes.Internal, err.Error())
		return
	}
	stream := &watchStream{conn: c, call: k, ctx: k.Context()}
	go func() {
		_ = n.health.Watch(req, stream) // it ends with the context, or if Send fails
		k.Fail(codes.Unavailable, "the stream has ended")
		c.Flush()
	}()
}

// watchStream is a stream of health states. Watch uses only Send and Context.
type watchStream struct {
	grpc.ServerStream
	conn *h2unary.Conn
	call *h2unary.Call
	ctx  context.Context
}

// Context implements grpc.ServerStream.
func (w *watchStream) Context() context.Context { return w.ctx }

// Send implements grpc_health_v1.Health_WatchServer.
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
