package unary

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/envoy/wire"
)

// Answer answers a protobuf message with another one, which it appends to out. It may keep parts of the request. Its
// error is a *wire.Error or the error of ctx.
type Answer func(ctx context.Context, request string, out []byte) ([]byte, error)

// Register adds the method, "/package.Service/Method", to a gRPC server. The server must use Codec.
func Register(g grpc.ServiceRegistrar, method string, answer Answer) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	info := grpc.UnaryServerInfo{FullMethod: method}
	g.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: name, Handler: func(
			_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor,
		) (any, error) {
			m := new(message)
			if err := decode(m); err != nil {
				return nil, err
			}
			handle := func(ctx context.Context, _ any) (any, error) { return m, m.answer(ctx, answer) }
			if interceptor == nil {
				return handle(ctx, m)
			}
			return interceptor(ctx, m, &info, handle)
		}}},
	}, nil)
}

// message is a request, and later its answer.
type message struct {
	request string
	reply   []byte
}

// usualReply is larger than most answers.
const usualReply = 1 << 10

func (m *message) answer(ctx context.Context, answer Answer) (err error) {
	m.reply, err = answer(ctx, m.request, make([]byte, 0, usualReply))
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return status.Error(codes.Code(e.Code), err.Error())
	}
	return status.FromContextError(err).Err()
}

// Codec leaves the messages of registered methods unchanged. All others get gRPC's codec (grpc.ForceServerCodecV2).
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2(grpcproto.Name)} }

type codec struct{ encoding.CodecV2 }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	// Copy the message once: all its texts are parts of the copy.
	m.request = string(buf.ReadOnlyData())
	return nil
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*message); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.reply)}, nil
	}
	return c.CodecV2.Marshal(v)
}
