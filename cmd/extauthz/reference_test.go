package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/commands"
)

// TestReference compares docs/reference/settings.md and cli.md with the settings and subcommands. `make reference`
// writes the pages.
func TestReference(t *testing.T) {
	testenv.CheckPage(t, "docs/reference/settings.md", settingsTables(t), *update)
	testenv.CheckPage(t, "docs/reference/findings.md", findingsTable(), *update)
	root := (&program{}).root()
	testenv.CheckPage(t, "docs/reference/cli.md", commands.Reference(root), *update)
	if parsed := commands.CheckExamples(t, root); parsed < 15 {
		t.Errorf("parsed %d examples", parsed)
	}
}

// TestExamplesOfSettings reads the example of every setting, and all together that do not contradict each other.
func TestExamplesOfSettings(t *testing.T) {
	all := variables{}
	for _, s := range settings.List() {
		if s.Example == "" {
			t.Errorf("%s has no example", s.Name)
		}
		all[s.Name] = s.Example
	}
	socket := variables{"GRPC_UDS": all["GRPC_UDS"]} // it contradicts GRPC_PORT
	delete(all, "GRPC_UDS")
	for _, examples := range []variables{all, socket} {
		testenv.Setenv(t, examples)
		if _, err := settings.Read(); err != nil {
			t.Error(err)
		}
	}
}

// settingsTables returns a table of settings for each group.
func settingsTables(t *testing.T) string {
	var b strings.Builder
	for i, s := range settings.List() {
		if i == 0 || s.Group != settings.List()[i-1].Group {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "## %s\n\n| variable | takes | default | example | meaning |\n|---|---|---|---|---|\n", s.Group)
		}
		name := commands.Code(s.Name)
		if s.File {
			name += " (`_FILE`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, takes(t, s.Name), commands.Code(s.Default),
			commands.Code(s.Example), s.Meaning)
	}
	return b.String()
}

// findingsTable returns a table of the kinds of findings.
func findingsTable() string {
	var b strings.Builder
	b.WriteString("| id | severity | what is wrong | what to do |\n|---|---|---|---|\n")
	for _, k := range doctor.Kinds() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.ID, k.Severity, k.Text, strings.Join(k.Remedy, "; "))
	}
	return b.String()
}

// takes returns the values that a setting accepts, from its error for a wrong value, or "any text" without an error.
func takes(t *testing.T, name string) string {
	t.Helper()
	var wants []string
	for _, wrong := range []string{"no such thing", "-1", "0", "-1s", "0s"} {
		var err error
		t.Run(name, func(t *testing.T) { // in which alone the variable is set
			testenv.Setenv(t, variables{name: wrong})
			_, err = settings.Read()
		})
		if err == nil {
			continue
		}
		for line := range strings.Lines(err.Error()) {
			about, want, ok := strings.Cut(strings.TrimSpace(line), ": want ")
			if ok && strings.Contains(about, name) && !slices.Contains(wants, want) {
				wants = append(wants, want)
			}
		}
	}
	if wants == nil {
		return "any text"
	}
	return strings.Join(wants, "; ")
}
