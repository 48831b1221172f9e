// Package xdsserver is a real xDS server for tests: ADS, state of the world, of any resources.
package xdsserver

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/ratelimit/config/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/extauthz/extauthz/test/testenv"
)

// Type is the type of rate limit configurations.
const Type = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig"

// Server is a running server. It sends its state to each new stream, and again when the state changes.
type Server struct {
	discoveryv3.UnimplementedAggregatedDiscoveryServiceServer

	Addr    string
	t       testing.TB
	options []grpc.ServerOption
	running *grpc.Server

	mu       sync.Mutex
	state    *discoveryv3.DiscoveryResponse // nil before Send
	changed  chan struct{}                  // closed when the state changes
	sent     int
	requests []*discoveryv3.DiscoveryRequest
	headers  metadata.MD
}

// Start starts a server without a state on a port of loopback.
func Start(t testing.TB, options ...grpc.ServerOption) *Server {
	t.Helper()
	s := &Server{
		Addr: testenv.Loopback(testenv.FreePort(t)), t: t, options: options, changed: make(chan struct{}),
	}
	s.Restart()
	t.Cleanup(s.Stop)
	return s
}

// Restart starts a server that was stopped, at the same address and with the same state.
func (s *Server) Restart(options ...grpc.ServerOption) {
	s.t.Helper()
	listener, err := net.Listen("tcp", s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.running = grpc.NewServer(append(options, s.options...)...)
	discoveryv3.RegisterAggregatedDiscoveryServiceServer(s.running, s)
	go func(g *grpc.Server) { _ = g.Serve(listener) }(s.running) // it ends with Stop
}

// Stop ends all streams and listens no longer.
func (s *Server) Stop() { s.running.Stop() }

// Send makes configurations the state, and returns the nonce of the response.
func (s *Server) Send(version string, configs ...*ratelimitv3.RateLimitConfig) (nonce string) {
	s.t.Helper()
	var resources []*anypb.Any
	for _, c := range configs {
		content, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
		if err != nil {
			s.t.Fatal(err)
		}
		resources = append(resources, &anypb.Any{TypeUrl: Type, Value: content})
	}
	return s.SendResponse(&discoveryv3.DiscoveryResponse{VersionInfo: version, TypeUrl: Type, Resources: resources})
}

// SendResponse makes a response the state. It sets its nonce, and returns it.
func (s *Server) SendResponse(r *discoveryv3.DiscoveryResponse) (nonce string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent++
	r.Nonce = "nonce-" + strconv.Itoa(s.sent)
	s.state = r
	close(s.changed)
	s.changed = make(chan struct{})
	return r.Nonce
}

// Answer waits for the request that accepts or refuses the response with a nonce.
func (s *Server) Answer(nonce string) *discoveryv3.DiscoveryRequest {
	s.t.Helper()
	return s.await("the answer to "+nonce, func(r *discoveryv3.DiscoveryRequest) bool {
		return r.GetResponseNonce() == nonce
	})
}

// Accepted waits for the request that accepts the response with a nonce, perhaps after it was refused.
func (s *Server) Accepted(nonce string) *discoveryv3.DiscoveryRequest {
	s.t.Helper()
	return s.await("the acceptance of "+nonce, func(r *discoveryv3.DiscoveryRequest) bool {
		return r.GetResponseNonce() == nonce && r.GetErrorDetail() == nil
	})
}

// Subscription waits for the first request of stream number 1, 2, ... It also returns the headers of the latest stream.
func (s *Server) Subscription(number int) (*discoveryv3.DiscoveryRequest, metadata.MD) {
	s.t.Helper()
	r := s.await(fmt.Sprintf("stream %d", number), func(r *discoveryv3.DiscoveryRequest) bool {
		if r.GetNode() != nil {
			number--
		}
		return r.GetNode() != nil && number == 0
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	return r, s.headers
}

func (s *Server) await(what string, is func(*discoveryv3.DiscoveryRequest) bool) (found *discoveryv3.DiscoveryRequest) {
	s.t.Helper()
	next := 0
	testenv.Eventually(s.t, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for ; next < len(s.requests); next++ {
			if is(s.requests[next]) {
				found = s.requests[next]
				return nil
			}
		}
		return errors.New("it has not come")
	}, what)
	return found
}

// StreamAggregatedResources implements the service.
func (s *Server) StreamAggregatedResources(
	stream discoveryv3.AggregatedDiscoveryService_StreamAggregatedResourcesServer,
) error {
	s.mu.Lock()
	s.headers, _ = metadata.FromIncomingContext(stream.Context())
	s.mu.Unlock()
	subscribed := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			request, err := stream.Recv()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.requests = append(s.requests, request)
			s.mu.Unlock()
			if first {
				close(subscribed)
			}
		}
	}()
	select {
	case <-stream.Context().Done():
		return nil
	case <-subscribed:
	}
	var last *discoveryv3.DiscoveryResponse
	for {
		s.mu.Lock()
		state, changed := s.state, s.changed
		s.mu.Unlock()
		if state != last {
			last = state
			if err := stream.Send(state); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-changed:
		}
	}
}
