package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

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
func askHealth(args []string, env service.Environment, stdout, stderr io.Writer) int {
	p, err := parseProbe(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, healthUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: health: %v\n(extauthz health --help lists all flags)\n", err)
		return exitNoStart
	}
	if p.url != "" {
		err = service.ProbeHTTP(context.Background(), p.url, p.timeout)
	} else {
		s, settingsErr := service.ReadSettings(env)
		if settingsErr != nil {
			fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n", settingsErr)
			return exitNoStart
		}
		err = service.ProbeGRPC(context.Background(), s, p.service, p.timeout)
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
