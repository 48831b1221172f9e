package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
)

func (p *program) settings() *cobra.Command {
	c := &cobra.Command{
		Use:   "settings",
		Short: "List all environment variables, with defaults and meaning",
		Long: "extauthz settings lists all settings. Each setting is an environment variable.\n" +
			"A secret can also come from a file: set NAME_FILE to its path.",
		Example: "  extauthz settings | grep REDIS",
		Args:    noArguments(""),
	}
	output := outputFlag(c, "text", "json")
	c.RunE = func(*cobra.Command, []string) error {
		if output.word == "json" {
			return printJSON(p.stdout, service.List())
		}
		w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
		for _, s := range service.List() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, s.Meaning)
		}
		return w.Flush()
	}
	return c
}
