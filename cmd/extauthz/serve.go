package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
)

func (p *program) serve() *cobra.Command {
	return &cobra.Command{
		Use:   "serve",
		Short: "Serve rate limits and authorization (the default)",
		Long: "extauthz serve answers Envoy over gRPC and HTTP.\n" +
			"All settings are environment variables: see extauthz settings.",
		Example: "  RUNTIME_ROOT=. RUNTIME_APPDIRECTORY=rules REDIS_URL=redis://127.0.0.1:6379 extauthz serve",
		Args:    command.NoArguments(": all settings are environment variables (extauthz settings)"),
		RunE: p.withSettings(func(ctx context.Context, s *settings.Settings, _ []string) error {
			this := command.ThisBuild()
			err := service.Run(ctx, service.Config{
				Settings: s, Stderr: p.Stderr, Terminal: p.Terminal,
				Build: service.Build{Version: this.Version, Revision: this.Commit, GoVersion: this.Go},
			})
			if errors.Is(err, service.ErrBlocked) {
				return command.ErrReported
			}
			return err
		}),
	}
}

func (p *program) echo() *cobra.Command {
	return &cobra.Command{
		Use:   "echo",
		Short: "Serve a test upstream that returns each request as JSON",
		Long: "extauthz echo is a test upstream. " +
			"It answers each request with 200 and a JSON body: the method, path and headers\n" +
			"that it received. /healthz returns 200. It speaks HTTP/1.1 and HTTP/2 without TLS.\n\n" +
			"The cookbook needs some other answers. POST /login gets 401 and x-login-failed: 1, unless the password\n" +
			"is \"right\". POST /v1/chat/completions is a chat model, whose usage is max_tokens. A WebSocket is closed\n" +
			"at once. A call of gRPC gets an empty message.\n\n" +
			"It listens on ECHO_ADDRESS, 127.0.0.1:8000 by default. In a container, set ECHO_ADDRESS=0.0.0.0:8000.\n" +
			"With STRICT_ENVIRONMENT=true it refuses to start if a variable is misspelt.",
		Example: "  ECHO_ADDRESS=127.0.0.1:8000 extauthz echo",
		Args:    command.NoArguments(": ECHO_ADDRESS sets its address"),
		// The settings are only read for STRICT_ENVIRONMENT.
		RunE: p.withSettings(func(ctx context.Context, _ *settings.Settings, _ []string) error {
			return service.Echo(ctx, os.Getenv("ECHO_ADDRESS"), p.Stderr)
		}),
	}
}
