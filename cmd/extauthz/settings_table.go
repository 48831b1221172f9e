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
		for f := range service.Fields() {
			fmt.Fprintf(w, "%s\t%s\t%s\n", f.Tag.Get("envconfig"), f.Tag.Get("default"), f.Tag.Get("desc"))
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
	for f := range service.Fields() {
		name, value := "`"+f.Tag.Get("envconfig")+"`", f.Tag.Get("default")
		if value != "" {
			value = "`" + value + "`"
		}
		if f.Tag.Get("secret") != "" {
			name += " (`_FILE`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, value, f.Tag.Get("desc"))
	}
	return b.String()
}
