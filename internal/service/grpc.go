package service

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/pkg/envoy/unary"
	"github.com/extauthz/extauthz/pkg/telemetry"
)

// Bounds of the gRPC server against broken or hostile clients. Each descriptor of a request holds at most the request
// headers that Envoy accepts, 60 kB by default. So no client of Envoy can make a request that is too large.
// connectTimeout includes the handshake of TLS.
const (
	maxRequest     = 1 << 20
	maxHeaderList  = 64 << 10
	minPing        = 5 * time.Second
	readBuffer     = 16 << 10
	writeBuffer    = 64 << 10
	connectTimeout = 5 * time.Second
)

func newGRPCServer(s *Settings, calls *telemetry.Calls, bugs *panics, more ...grpc.ServerOption) *grpc.Server {
	return grpc.NewServer(append(more,
		grpc.ForceServerCodecV2(unary.Codec()),
		grpc.MaxConcurrentStreams(uint32(s.MaxStreams)),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.ReadBufferSize(readBuffer),
		grpc.WriteBufferSize(writeBuffer),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge: s.MaxConnAge, MaxConnectionAgeGrace: s.MaxConnGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(intercept(calls, bugs)), // the outermost one
	)...)
}

// intercept counts and times calls, and turns a panic into an error.
func intercept(calls *telemetry.Calls, bugs *panics) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (resp any,
		err error) {
		start := time.Now()
		defer func() {
			if p := recover(); p != nil {
				bugs.caught(info.FullMethod, p)
				err = status.Error(codes.Internal, "internal error")
			}
			calls.Of(info.FullMethod).Observe(status.Code(err), time.Since(start))
		}()
		return handler(ctx, req)
	}
}
