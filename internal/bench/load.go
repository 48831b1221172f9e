package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	ratelimitcommon "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// sample is one measurement of one server: requests a second, and µs of its CPU a request.
type sample struct{ perSecond, cpu float64 }

const keys = 10_000

// measure keeps a server busy for a while with requests for one descriptor of many keys.
func measure(ctx context.Context, s *server, o options) (sample, error) {
	clients := make([]ratelimitv3.RateLimitServiceClient, o.connections)
	for i := range clients {
		conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return sample{}, err
		}
		defer conn.Close()
		clients[i] = ratelimitv3.NewRateLimitServiceClient(conn)
	}
	ctx, cancel := context.WithTimeout(ctx, o.each+30*time.Second)
	defer cancel()
	if _, err := clients[0].ShouldRateLimit(ctx, request(0)); err != nil { // connected
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
			client := clients[g%len(clients)]
			for n := g; time.Since(begin) < o.each; n += o.concurrency {
				res, err := client.ShouldRateLimit(ctx, request(n))
				if err == nil && res.GetOverallCode() != ratelimitv3.RateLimitResponse_OK {
					err = fmt.Errorf("overall code %v", res.GetOverallCode())
				}
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

func request(n int) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: "bench", Descriptors: []*ratelimitcommon.RateLimitDescriptor{{
		Entries: []*ratelimitcommon.RateLimitDescriptor_Entry{{Key: "user", Value: fmt.Sprint(n % keys)}},
	}}}
}
