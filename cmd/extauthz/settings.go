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
		Short: "List all settings, their defaults and meaning",
		Long: "extauthz settings lists all settings. They are environment variables; secrets can also come from the " +
			"file that NAME_FILE names.",
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
