package grpcgo

import (
	"context"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/flow"
	"github.com/extauthz/extauthz/internal/guard"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Config are the settings of a server.
type Config struct {
	// Flow answers both services. Required.
	Flow *flow.Flow
	// Health answers grpc.health.v1. Calls counts its calls.
	Health grpc_health_v1.HealthServer
	Calls  *telemetry.Calls
	// MaxStreams, MaxMessage, MaxAge, MaxAgeGrace and ConnectTimeout bound connections, as in h2unary.Config, but have no
	// defaults: without MaxStreams or an age there is no such bound, and the others are required.
	MaxStreams, MaxMessage int
	MaxAge, MaxAgeGrace    time.Duration
	ConnectTimeout         time.Duration
}

// Bounds that have no settings.
const (
	maxHeaderList = 64 << 10
	minPing       = 5 * time.Second
	readBuffer    = 16 << 10
	writeBuffer   = 64 << 10
)

// Server is a grpc.Server. Use New.
type Server struct{ *grpc.Server }

// New returns a server.
func New(cfg Config) Server {
	s := Server{grpc.NewServer(
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2(grpcproto.Name)}),
		grpc.MaxHeaderListSize(maxHeaderList), grpc.ReadBufferSize(readBuffer), grpc.WriteBufferSize(writeBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: cfg.MaxAge, MaxConnectionAgeGrace: cfg.MaxAgeGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(count(cfg.Calls)), grpc.MaxConcurrentStreams(uint32(cfg.MaxStreams)),
		grpc.MaxRecvMsgSize(cfg.MaxMessage), grpc.ConnectionTimeout(cfg.ConnectTimeout),
	)}
	for m, name := range flow.Methods {
		s.register(name, func(ctx context.Context, request string) ([]byte, error) {
			headers, _ := metadata.FromIncomingContext(ctx)
			reply, err := cfg.Flow.Answer(ctx, flow.Method(m), request, callHeaders(headers))
			if err != nil {
				err = status.Error(flow.Status(err))
			}
			return reply, err
		})
	}
	grpc_health_v1.RegisterHealthServer(s, cfg.Health)
	return s
}

// Serve serves until Shutdown. Its error then means that the server has been stopped.
func (s Server) Serve(l *guard.Listener) error { return s.Server.Serve(l) }

// Shutdown accepts no new requests. It waits for those in flight until ctx is done, then cuts them off.
func (s Server) Shutdown(ctx context.Context) {
	defer context.AfterFunc(ctx, s.Stop)()
	s.GracefulStop()
}

// count counts and times the calls of the health service. The flow counts all others.
func count(calls *telemetry.Calls) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		start := time.Now()
		res, err := handler(ctx, req)
		calls.Of(info.FullMethod).Observe(status.Code(err), time.Since(start))
		return res, err
	}
}

// callHeaders are the telemetry.Headers of a call.
type callHeaders metadata.MD

func (h callHeaders) Get(name string) string { return strings.Join(metadata.MD(h).Get(name), ",") }

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
