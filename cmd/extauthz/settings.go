package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/service"
)

func (p *program) settings() *cobra.Command {
	c := &cobra.Command{
		Use:     "settings",
		Short:   "List all settings, their defaults and meaning",
		Long:    "extauthz settings lists all settings. They are environment variables; secrets can also come from the file that NAME_FILE names.",
		Example: "  extauthz settings | grep REDIS",
		Args:    noArguments(""),
	}
	markdown := c.Flags().Bool("markdown", false, "print the table of docs/reference/settings.md")
	output := outputFlag(c, "text", "json")
	c.RunE = func(*cobra.Command, []string) error {
		switch {
		case *markdown && c.Flags().Changed("output"):
			return usage("--markdown and --output: take one of them")
		case *markdown:
			_, err := fmt.Fprint(p.stdout, settingsTable())
			return err
		case output.word == "json":
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

// settingsTable is the table of docs/reference/settings.md.
func settingsTable() string {
	var b strings.Builder
	b.WriteString("| variable | default | meaning |\n|---|---|---|\n")
	for _, s := range service.List() {
		name, value := "`"+s.Name+"`", s.Default
		if value != "" {
			value = "`" + value + "`"
		}
		if s.File {
			name += " (`_FILE`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value, s.Meaning)
	}
	return b.String()
}
