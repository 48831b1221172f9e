package main

import (
	"context"
	"errors"

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
