package main

import (
	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
)

func (p *program) echo() *cobra.Command {
	return &cobra.Command{
		Use:   "echo",
		Short: "Serve an upstream for trying things out",
		Long: "extauthz echo is an upstream for trying things out. It answers each request with 200 and, as JSON, the " +
			"method, path and headers\n" +
			"that it has received, and /healthz with 200. It speaks HTTP/1.1 and HTTP/2 without TLS.\n\n" +
			"It listens on ECHO_ADDRESS, 127.0.0.1:8000 by default; in a container set it to 0.0.0.0:8000.\n" +
			"With STRICT_ENVIRONMENT=true it does not start with a misspelt variable.",
		Example: "  ECHO_ADDRESS=127.0.0.1:8000 extauthz echo",
		Args:    noArguments(": ECHO_ADDRESS sets its address"),
		RunE: func(c *cobra.Command, _ []string) error {
			ctx, stop := untilInterrupted(c.Context())
			defer stop()
			return serverError(service.Echo(ctx, p.env, p.stderr))
		},
	}
}
