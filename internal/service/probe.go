package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// ProbeGRPC asks the service that has these settings, over grpc.health.v1, whether one of its services may get requests; "" means all of
// them. It returns nil if so, else an error that says what to do.
func ProbeGRPC(ctx context.Context, s *Settings, name string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	where, settings := s.grpcAddress(), "GRPC_HOST and GRPC_PORT"
	target := "passthrough:///" + where
	if s.GRPCUDS != "" {
		target, settings, where = "unix:"+s.GRPCUDS, "GRPC_UDS", s.GRPCUDS
	}
	// The proxy of the environment is not for a service on this machine.
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer func() { _ = conn.Close() }() // nothing is in flight
	res, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
	switch status.Code(err) {
	case codes.OK:
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s has not answered within %s: what listens there hangs or is not a gRPC server", where, timeout)
	case codes.NotFound:
		return fmt.Errorf("%s does not know a service %q: want one of %q", where, name, healthNames)
	case codes.Unavailable:
		return fmt.Errorf("%s does not answer: %s: is the service running, with the same %s?", where, status.Convert(err).Message(), settings)
	default:
		return fmt.Errorf("%s: %w: does extauthz listen there?", where, err)
	}
	if state := res.GetStatus(); state != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s reports %s for service %q: it is draining, or has no rules yet; see its log", where, state, name)
	}
	return nil
}

// ProbeHTTP returns nil if a URL answers with status 200.
func ProbeHTTP(ctx context.Context, url string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport:     &http.Transport{}, // without the proxy of the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("GET %s: no answer within %s", url, timeout)
	}
	if err != nil {
		return fmt.Errorf("%w: is the service running, and the URL right?", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		const most = 200 // enough to recognize it
		body, _ := io.ReadAll(io.LimitReader(res.Body, most))
		first, _, _ := strings.Cut(string(body), "\n")
		return fmt.Errorf("GET %s: %s %q, want 200", url, res.Status, first)
	}
	return nil
}

// grpcAddress is where a client on the same machine reaches the gRPC listener.
func (s *Settings) grpcAddress() string {
	host := s.GRPCHost
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(s.GRPCPort)))
}
