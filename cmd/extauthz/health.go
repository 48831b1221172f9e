package main

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/service"
)

func (p *program) health() *cobra.Command {
	c := &cobra.Command{
		Use:   "health",
		Short: "Check that a running service accepts requests",
		Long: "extauthz health exits with 0 if a running service accepts requests, else with 1 and the reason.\n" +
			"It calls grpc.health.v1 at GRPC_HOST and GRPC_PORT, or at GRPC_UDS, so give it the settings of the service.",
		Example: "  # the health check of a container, which needs neither a shell nor curl\n" +
			"  test: [\"CMD\", \"/usr/local/bin/extauthz\", \"health\"]",
		Args: command.NoArguments(""),
	}
	name := c.Flags().String("service", "", "check one service `NAME`, such as envoy.service.auth.v3.Authorization; "+
		"default: all services")
	address := c.Flags().String("http", "", "send GET to this `URL` instead; healthy means status 200")
	timeout := c.Flags().Duration("timeout", probeTimeout, "maximum wait for the response")
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) (err error) {
		if *timeout <= 0 {
			return command.Usage("--timeout %s: want more than 0, such as 2s", *timeout)
		}
		switch u, urlErr := url.Parse(*address); {
		case *address == "":
			s, err := p.readSettings()
			if err != nil {
				return err
			}
			return p.reportHealth(service.ProbeGRPC(c.Context(), s, *name, *timeout), output)
		case *name != "":
			return command.Usage("--service and --http: take one of them, because only gRPC health has services")
		case urlErr != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
			return command.Usage("--http %q: want a URL such as http://127.0.0.1:8080/readyz", *address)
		}
		if _, err = doctor.Get(c.Context(), *address, *timeout, 0); err != nil {
			err = fmt.Errorf("GET %s: %w", *address, err)
		}
		return p.reportHealth(err, output)
	}
	return c
}

func (p *program) reportHealth(unhealthy error, output *command.Format) error {
	if output.Word == "text" {
		if unhealthy == nil {
			fmt.Fprintln(p.Stdout, "healthy")
		}
		return unhealthy
	}
	result := struct {
		Healthy bool   `json:"healthy"`
		Reason  string `json:"reason,omitempty"`
	}{Healthy: unhealthy == nil}
	if unhealthy != nil {
		result.Reason, unhealthy = unhealthy.Error(), command.ErrReported
	}
	return errors.Join(command.PrintJSON(p.Stdout, result), unhealthy)
}
