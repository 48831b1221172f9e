package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/settings"
)

func (p *program) settings() *cobra.Command {
	c := &cobra.Command{
		Use:   "settings",
		Short: "List all environment variables, with defaults and meaning",
		Long: "extauthz settings lists all settings. Each setting is an environment variable.\n" +
			"A secret can also come from a file: set NAME_FILE to its path.\n" +
			"It reports the mistakes in the variables that are set, and the settings without effect, to stderr.",
		Example: "  extauthz settings | grep REDIS",
		Args:    command.NoArguments(""),
	}
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(*cobra.Command, []string) error {
		if err := output.Print(p.Stdout, settings.List(), p.listSettings); err != nil {
			return err
		}
		s, err := p.readSettings()
		if err == nil {
			p.warn(s)
		}
		return err
	}
	return c
}

func (p *program) listSettings() error {
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, s := range settings.List() {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, s.Meaning)
	}
	return w.Flush()
}

// warn reports the settings without effect, as the log does at the start.
func (p *program) warn(s *settings.Settings) {
	for _, warning := range s.Warnings {
		fmt.Fprintf(p.Stderr, "warning: %s\n", warning)
	}
}
