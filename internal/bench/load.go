package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
)

// sample is one measurement of one server: requests per second, and µs of its CPU time per request.
type sample struct{ perSecond, cpu float64 }

const keys = 10_000

// call makes the n-th call to a server. An answer other than OK is an error.
type call func(ctx context.Context, s *server, conn *grpc.ClientConn, n int) error

func callLimit(ctx context.Context, _ *server, conn *grpc.ClientConn, n int) error {
	res, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "bench",
		Descriptors: []*ratelimitcommon.RateLimitDescriptor{{
			Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(n % keys)}},
		}},
	})
	if err == nil && res.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
		return fmt.Errorf("overall code %v", res.GetOverallCode())
	}
	return err
}

// callCheck sends a Check for the request of a browser, with some 20 headers.
func callCheck(ctx context.Context, srv *server, conn *grpc.ClientConn, _ int) error {
	headers := map[string]string{
		":authority": "shop.example", ":method": "GET", ":path": "/v1/users/7?page=2", ":scheme": "https",
		"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "accept-encoding": "gzip, deflate, br",
		"accept-language": "en-US,en;q=0.5", "cache-control": "no-cache", "dnt": "1",
		"referer":        "https://shop.example/v1/users",
		"sec-fetch-dest": "document", "sec-fetch-mode": "navigate", "sec-fetch-site": "same-origin",
		"user-agent":      "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
		"x-forwarded-for": "192.0.2.1", "x-forwarded-proto": "https", "x-request-id": "5b0e0b0e-5b0e-4b0e-8b0e-5b0e0b0e5b0e",
		"cookie": "session=0123456789abcdef0123456789abcdef; theme=dark",
	}
	if srv.header != "" {
		headers[srv.header] = srv.value
	}
	res, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "192.0.2.1"},
		}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Id: "1", Method: "GET", Host: "shop.example", Path: "/v1/users/7?page=2", Scheme: "https",
			Protocol: "HTTP/2", Headers: headers,
		}},
	}})
	if err == nil && codes.Code(res.GetStatus().GetCode()) != codes.OK {
		return fmt.Errorf("refused: %v", res)
	}
	return err
}

// measure calls a server for the duration o.each, with o.concurrency calls in flight.
func measure(ctx context.Context, s *server, do call, o options) (sample, error) {
	conns := make([]*grpc.ClientConn, o.connections)
	for i := range conns {
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return sample{}, err
		}
		defer conn.Close()
		conns[i] = conn
	}
	ctx, cancel := context.WithTimeout(ctx, o.each+30*time.Second)
	defer cancel()
	if err := do(ctx, s, conns[0], 0); err != nil { // connects
		return sample{}, err
	}
	before, err := s.cpu()
	if err != nil {
		return sample{}, err
	}
	var (
		done   atomic.Int64
		failed atomic.Pointer[error]
		wait   sync.WaitGroup
	)
	begin := time.Now()
	for g := range o.concurrency {
		wait.Go(func() {
			for n := g; time.Since(begin) < o.each; n += o.concurrency {
				err := do(ctx, s, conns[g%len(conns)], n)
				if err != nil {
					failed.Store(&err)
					return
				}
				done.Add(1)
			}
		})
	}
	wait.Wait()
	took := time.Since(begin)
	if err := failed.Load(); err != nil {
		return sample{}, *err
	}
	after, err := s.cpu()
	if err != nil {
		return sample{}, err
	}
	return sample{
		perSecond: float64(done.Load()) / took.Seconds(),
		cpu:       float64((after - before).Microseconds()) / float64(done.Load()),
	}, nil
}
