package service

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/h2unary"
	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// askHealth answers a call of grpc.health.v1 whose request and response are one message each.
func askHealth[Request, Response proto.Message](
	n *native, k *h2unary.Call, req Request, ask func(context.Context, Request) (Response, error),
) {
	reply, err := n.recovered(nativeMethods[k.Method], func() ([]byte, error) {
		if err := proto.Unmarshal(k.Message, req); err != nil {
			return nil, &wire.Error{Code: wire.Internal, Reason: err.Error()}
		}
		res, err := ask(context.Background(), req)
		if err != nil {
			s := status.Convert(err)
			return nil, &wire.Error{Code: wire.Code(s.Code()), Reason: s.Message()}
		}
		return proto.Marshal(res)
	})
	n.reply(k, reply, err)
}

// watchHealth answers grpc.health.v1.Health/Watch: a message for each change, until the client or the server ends it.
func (n *native) watchHealth(c *h2unary.Conn, k *h2unary.Call) {
	req := new(grpc_health_v1.HealthCheckRequest)
	if err := proto.Unmarshal(k.Message, req); err != nil {
		k.Fail(codes.Internal, err.Error())
		return
	}
	stream := &watchStream{conn: c, call: k, ctx: k.Context()}
	n.run(c, watchMethod, func() {
		_ = n.health.Watch(req, stream) // it ends with the context, or if Send fails
		k.Fail(codes.Unavailable, "the stream has ended")
	})
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
