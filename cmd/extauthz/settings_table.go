package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/extauthz/extauthz/internal/service"
)

// printSettings lists the settings as text, or with --markdown as the table of README.md.
func printSettings(args []string, stdout, stderr io.Writer) int {
	switch {
	case len(args) == 0:
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		for _, s := range service.List() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, s.Default, s.Meaning)
		}
		_ = w.Flush() // what the terminal does not take is lost anyway
		return exitOK
	case len(args) == 1 && args[0] == "--markdown":
		fmt.Fprint(stdout, settingsTable())
		return exitOK
	}
	fmt.Fprintf(stderr, "extauthz settings: unknown argument %q: want --markdown or nothing\n", args[0])
	return exitNoStart
}

// settingsTable is the table of settings in README.md.
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
