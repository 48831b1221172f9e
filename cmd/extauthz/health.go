package main

import (
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
)

// probeTimeout is shorter than what probes of containers usually allow, so that the reason is printed before they give
// up.
const probeTimeout = 2 * time.Second

func (p *program) health() *cobra.Command {
	c := &cobra.Command{
		Use:   "health",
		Short: "Ask a running service whether it is healthy",
		Long: "extauthz health asks a running service whether requests may be sent to it. The exit code is 0 if so, else " +
			"1.\n" +
			"It asks grpc.health.v1 at GRPC_HOST and GRPC_PORT, or GRPC_UDS, where the service listens with the same settings.",
		Example: "  # the health check of a container, which needs neither a shell nor curl\n" +
			"  test: [\"CMD\", \"/usr/local/bin/extauthz\", \"health\"]",
		Args: noArguments(""),
	}
	name := c.Flags().String("service", "", "ask for one `NAME`, such as envoy.service.auth.v3.Authorization; default: "+
		"all services")
	address := c.Flags().String("http", "", "GET this `URL` instead, and want status 200")
	timeout := c.Flags().Duration("timeout", probeTimeout, "how long to wait for the answer")
	output := outputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if *timeout <= 0 {
			return usage("--timeout %s: want more than 0, such as 2s", *timeout)
		}
		switch u, urlErr := url.Parse(*address); {
		case *address == "":
			s, err := p.readSettings()
			if err != nil {
				return err
			}
			return p.reportHealth(service.ProbeGRPC(c.Context(), s, *name, *timeout), output)
		case *name != "":
			return usage("--service and --http: take one of them, because only gRPC knows services")
		case urlErr != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return usage("--http %q: want a URL such as http://127.0.0.1:8080/readyz", *address)
		}
		return p.reportHealth(service.ProbeHTTP(c.Context(), *address, *timeout), output)
	}
	return c
}

// reportHealth prints the result of a probe.
func (p *program) reportHealth(unhealthy error, output *format) error {
	if output.word == "text" {
		if unhealthy == nil {
			fmt.Fprintln(p.stdout, "healthy")
		}
		return unhealthy
	}
	result := struct {
		Healthy bool   `json:"healthy"`
		Reason  string `json:"reason,omitempty"`
	}{Healthy: unhealthy == nil}
	if unhealthy != nil {
		result.Reason, unhealthy = unhealthy.Error(), errReported
	}
	return errors.Join(printJSON(p.stdout, result), unhealthy)
}
