package service

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/internal/settings"
)

// Client calls a rate limit or ext_authz service, as Envoy does.
type Client struct {
	// Address is host:port, or unix:/path.
	Address string
	// TLS has the files of the connection. nil means plaintext.
	TLS *certs.ClientFiles
	// Timeout bounds the call.
	Timeout time.Duration
}

// Call sends the request of a method, and reads its answer into res. Its error names the address and what to check.
func (c Client) Call(ctx context.Context, method string, req, res proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	secured := insecure.NewCredentials()
	if c.TLS != nil {
		files, err := certs.NewClient(*c.TLS)
		if err != nil {
			return err
		}
		secured = credentials.NewTLS(files.Config())
	}
	conn, err := grpc.NewClient(c.Address, grpc.WithTransportCredentials(secured))
	if err != nil {
		return fmt.Errorf("%s: %w", c.Address, err)
	}
	defer func() { _ = conn.Close() }() // no call is in flight
	err = conn.Invoke(ctx, method, req, res)
	message := status.Convert(err).Message()
	switch code := status.Code(err); {
	case code == codes.OK:
		return nil
	case strings.Contains(message, "HTTP/1.1 header"), strings.Contains(message, "unexpected HTTP status"):
		return fmt.Errorf("%s is an HTTP port: want the gRPC port of the service, which is GRPC_PORT (8081 by default)",
			c.Address)
	case code == codes.DeadlineExceeded:
		return fmt.Errorf("%s has not answered within %s", c.Address, c.Timeout)
	case code == codes.Unavailable:
		return fmt.Errorf("%s does not answer: %s: check the address, and whether the service has TLS or wants a certificate",
			c.Address, message)
	}
	return fmt.Errorf("%s refuses the request: %s (%s)", c.Address, message, status.Code(err))
}

// ProbeGRPC returns nil if grpc.health.v1 of the service reports SERVING for name, "" for all services.
func ProbeGRPC(ctx context.Context, s *settings.Settings, name string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	where, settings := grpcAddress(s.Listeners), "GRPC_HOST and GRPC_PORT"
	target := "passthrough:///" + where
	if s.Listeners.GRPCUDS != "" {
		target, settings, where = "unix:"+s.Listeners.GRPCUDS, "GRPC_UDS", s.Listeners.GRPCUDS
	}
	secured, err := probeCredentials(s.TLS)
	if err != nil {
		return err
	}
	// A service on this machine is never behind the proxy of the environment.
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(secured), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer func() { _ = conn.Close() }() // no call is in flight
	res, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: name})
	switch status.Code(err) {
	case codes.OK:
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s has not answered within %s: the process that listens there hangs, or is not a gRPC server",
			where, timeout)
	case codes.NotFound:
		return fmt.Errorf("%s has no service %q: want one of %q", where, name, healthNames)
	case codes.Unavailable:
		if s.TLS.ClientCA != "" {
			settings += "; if it refuses the certificate of the probe, which is GRPC_SERVER_TLS_CERT, use --http with " +
				"http://127.0.0.1:8080/readyz"
		}
		return fmt.Errorf("%s does not answer: %s: check that the service runs with the same %s", where,
			status.Convert(err).Message(), settings)
	default:
		return fmt.Errorf("%s: %w: check that extauthz listens there", where, err)
	}
	if state := res.GetStatus(); state != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s reports %s for service %q: the service is draining or has no rules yet; see its log",
			where, state, name)
	}
	return nil
}

// probeCredentials returns the TLS of a probe, as the settings of the service say. A probe sends nothing secret to this
// machine, so it accepts every certificate. Where clients need one, it shows that of the service.
func probeCredentials(t settings.TLS) (credentials.TransportCredentials, error) {
	if !t.Use {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{InsecureSkipVerify: true}
	if t.ClientCA != "" {
		pair, err := certs.ReadPair(t.Cert, t.Key, nil)
		if err != nil {
			return nil, fmt.Errorf("GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: %w", err)
		}
		cfg.GetClientCertificate = pair.ForServer
	}
	return credentials.NewTLS(cfg), nil
}

// grpcAddress returns the address of the gRPC listener for a client on the same machine.
func grpcAddress(l settings.Listeners) string {
	host := l.GRPCHost
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(int(l.GRPCPort)))
}
