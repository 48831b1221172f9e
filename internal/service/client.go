package service

import (
	"context"
	"fmt"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/certs"
)

// Client calls a rate limit service, as Envoy does.
type Client struct {
	// Address is host:port, or unix:/path.
	Address string
	// TLS has the files of the connection. nil means plaintext.
	TLS *certs.ClientFiles
	// Timeout bounds the call.
	Timeout time.Duration
}

// ShouldRateLimit sends one request. Its error names the address and what to check.
func (c Client) ShouldRateLimit(ctx context.Context, req *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	secured := insecure.NewCredentials()
	if c.TLS != nil {
		files, err := certs.NewClient(*c.TLS)
		if err != nil {
			return nil, err
		}
		secured = credentials.NewTLS(files.Config())
	}
	conn, err := grpc.NewClient(c.Address, grpc.WithTransportCredentials(secured))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Address, err)
	}
	defer func() { _ = conn.Close() }() // no call is in flight
	res, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
	switch status.Code(err) {
	case codes.OK:
		return res, nil
	case codes.DeadlineExceeded:
		return nil, fmt.Errorf("%s has not answered within %s", c.Address, c.Timeout)
	case codes.Unavailable:
		return nil, fmt.Errorf("%s does not answer: %s: check the address, and whether the service has TLS", c.Address,
			status.Convert(err).Message())
	}
	return nil, fmt.Errorf("%s refuses the request: %s (%s)", c.Address, status.Convert(err).Message(), status.Code(err))
}
