package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/extauthz/extauthz/internal/service"
)

const healthUsage = `extauthz health asks a running service whether requests may be sent to it; exit 0 when they may, 1 when not.

Usage:
  extauthz health             ask grpc.health.v1 where GRPC_HOST and GRPC_PORT, or GRPC_UDS, say that the service listens
  --service NAME              of one service, such as envoy.service.auth.v3.Authorization; default: of all
  --http URL                  GET this URL instead, and want 200
  --timeout 2s                how long to wait for the answer

Example, as the health check of a container, which needs no shell and no curl:
  test: ["CMD", "/usr/local/bin/extauthz", "health"]
`

// probeTimeout is shorter than what probes of containers usually allow, so that the reason is printed before they give up.
const probeTimeout = 2 * time.Second

// probe is one question after somebody's health.
type probe struct {
	service string
	url     string
	timeout time.Duration
}

// askHealth runs the subcommand health.
func askHealth(args []string, stdout, stderr io.Writer) int {
	p, err := parseProbe(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, healthUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: health: %v\n(extauthz health --help lists all flags)\n", err)
		return exitNoStart
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.timeout)
	defer cancel()
	if p.url != "" {
		err = p.askHTTP(ctx)
	} else {
		s, _, settingsErr := service.ReadSettings()
		if settingsErr != nil {
			fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n", settingsErr)
			return exitNoStart
		}
		err = p.askGRPC(ctx, s)
	}
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: health: %v\n", err)
		return exitFailed
	}
	fmt.Fprintln(stdout, "healthy")
	return exitOK
}

func parseProbe(args []string) (*probe, error) {
	p := new(probe)
	f := flag.NewFlagSet("health", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error is enough
	f.StringVar(&p.service, "service", "", "")
	f.StringVar(&p.url, "http", "", "")
	f.DurationVar(&p.timeout, "timeout", probeTimeout, "")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("takes no arguments but flags, not %q", strings.Join(f.Args(), " "))
	}
	if p.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %s: want more than 0, such as 2s", p.timeout)
	}
	if p.url == "" {
		return p, nil
	}
	if p.service != "" {
		return nil, errors.New("--service and --http: take one of them, since only gRPC knows services")
	}
	if u, err := url.Parse(p.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("--http %q: want a URL such as http://127.0.0.1:8080/readyz", p.url)
	}
	return p, nil
}

// askGRPC returns nil when the service that these settings describe says that it is serving.
func (p *probe) askGRPC(ctx context.Context, s *service.Settings) error {
	target, settings := "passthrough:///"+s.GRPCAddress(), "GRPC_HOST and GRPC_PORT"
	where := s.GRPCAddress()
	if s.GRPCUDS != "" {
		target, settings, where = "unix:"+s.GRPCUDS, "GRPC_UDS", s.GRPCUDS
	}
	// A proxy of the environment is for what is far away.
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	defer func() { _ = conn.Close() }() // the answer is there, or is none
	res, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: p.service})
	switch status.Code(err) {
	case codes.OK:
	case codes.DeadlineExceeded:
		return fmt.Errorf("%s has not answered within %s: what listens there hangs or is no gRPC server", where, p.timeout)
	case codes.NotFound:
		return fmt.Errorf("%s knows no service %q: want one of %q", where, p.service, service.HealthNames)
	case codes.Unavailable:
		return fmt.Errorf("%s does not answer: %s: is the service running, with the same %s?", where, status.Convert(err).Message(), settings)
	default:
		return fmt.Errorf("%s: %w: is it an extauthz that listens there?", where, err)
	}
	if state := res.GetStatus(); state != grpc_health_v1.HealthCheckResponse_SERVING {
		return fmt.Errorf("%s says %s of service %q: it is draining, or waits for rules; its log says which", where, state, p.service)
	}
	return nil
}

// askHTTP returns nil when the URL answers 200.
func (p *probe) askHTTP(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	client := &http.Client{
		Transport:     &http.Transport{}, // without the proxy of the environment
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("GET %s: no answer within %s", p.url, p.timeout)
	}
	if err != nil {
		return fmt.Errorf("%w: is the service running, and the URL right?", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		const most = 200 // enough to know it by
		body, _ := io.ReadAll(io.LimitReader(res.Body, most))
		first, _, _ := strings.Cut(string(body), "\n")
		return fmt.Errorf("GET %s: %s %q, want 200", p.url, res.Status, first)
	}
	return nil
}
