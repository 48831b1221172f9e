// Command extauthz is a rate limit and authorization service for Envoy.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/settings"
)

func main() {
	p := &program{command.OfProcess()}
	os.Exit(p.called(filepath.Base(os.Args[0]), os.Args[1:]))
}

// program has what a run of extauthz gets from its process.
type program struct{ command.Program }

// run runs one subcommand and returns the exit code.
func (p *program) run(args []string) int { return p.Run(p.root(), args) }

func (p *program) root() *cobra.Command {
	root := p.serve()
	root.Use = "extauthz"
	root.Short = "Rate limits and authorization for Envoy"
	root.Long = "extauthz is a rate limit and authorization service for Envoy. " +
		"It counts exactly, in memory or in Redis.\n" +
		"Without a subcommand it runs serve. All settings are environment variables: see extauthz settings."
	return p.Root(root, p.serve(), p.buckets(), p.check(), p.doctor(), p.health(), p.client(), p.echo(), p.explain(),
		p.keys(), p.settings(), p.schema(), p.shadow(), p.test(), moved("bench"), moved("migrate"))
}

// moved is a subcommand that extauthz-tools has.
func moved(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error {
			return command.Usage("extauthz-tools has this command now: run extauthz-tools %s", name)
		},
	}
}

func (p *program) readSettings() (*settings.Settings, error) {
	s, err := settings.Read()
	if err != nil {
		return nil, fmt.Errorf("the environment has mistakes:\n%w\n(extauthz settings lists all settings)", err)
	}
	return s, nil
}

// withSettings returns the RunE of a command that needs the settings. ctx is done at Ctrl-C or SIGTERM.
func (p *program) withSettings(
	run func(ctx context.Context, s *settings.Settings, args []string) error,
) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		s, err := p.readSettings()
		if err != nil {
			return err
		}
		ctx, stop := command.UntilInterrupted(c.Context())
		defer stop()
		return run(ctx, s, args)
	}
}
