package grpcgo

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
)

// register adds the method, "/package.Service/Method". answer answers a protobuf message with another one, and keeps no
// part of the request. Interceptors do not see the calls.
func (s Server) register(method string, answer func(ctx context.Context, request string) ([]byte, error)) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: service,
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: name, Handler: func(
			_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor,
		) (any, error) {
			m := new(message)
			if err := decode(m); err != nil {
				return nil, err
			}
			var err error
			m.reply, err = answer(ctx, m.request)
			return m, err
		}}},
	}, nil)
}

// message is a request, and later its answer.
type message struct {
	request string
	reply   []byte
}

// codec leaves the messages of registered methods unchanged. All others get gRPC's codec.
type codec struct{ encoding.CodecV2 }

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	m.request = string(buf.ReadOnlyData()) // a copy, because the buffer is used again
	return nil
}

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if m, ok := v.(*message); ok {
		return mem.BufferSlice{mem.SliceBuffer(m.reply)}, nil
	}
	return c.CodecV2.Marshal(v)
}
