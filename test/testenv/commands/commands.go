// Package commands writes the reference of a program, and checks its examples. It is not part of testenv, because
// modules without cobra use testenv.
package commands

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference returns a section of Markdown for a command and for each of its visible subcommands.
func Reference(root *cobra.Command) string {
	var b strings.Builder
	eachCommand(root, func(c *cobra.Command) { writeCommand(&b, c) })
	return b.String()
}

// CheckExamples parses every example of a program: its flags and its arguments. It returns their number.
func CheckExamples(t testing.TB, root *cobra.Command) (parsed int) {
	t.Helper()
	var examples strings.Builder
	eachCommand(root, func(c *cobra.Command) { examples.WriteString(c.Example + "\n") })
	example := regexp.MustCompile(`\b` + root.Name() + ` ([^)|<>\n]*)`)
	for _, found := range example.FindAllStringSubmatch(examples.String(), -1) {
		c, args, err := root.Find(strings.Fields(found[1]))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", found[0], err)
		}
		parsed++
	}
	return parsed
}

// eachCommand calls f for a command and its visible subcommands.
func eachCommand(c *cobra.Command, f func(*cobra.Command)) {
	f(c)
	for _, below := range c.Commands() {
		if !below.Hidden && below.Name() != "help" {
			eachCommand(below, f)
		}
	}
}

// writeCommand writes the section of a subcommand.
func writeCommand(b *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(b, "## %s\n\n```\n%s\n```\n\n%s\n\n", c.CommandPath(), c.UseLine(), text)
	if flags := c.NonInheritedFlags(); flags.HasAvailableFlags() {
		b.WriteString("| flag | default | meaning |\n|---|---|---|\n")
		flags.VisitAll(func(f *pflag.Flag) {
			value, usage := pflag.UnquoteUsage(f)
			name := strings.TrimSpace("--" + f.Name + " " + value)
			if f.Shorthand != "" {
				name = "-" + f.Shorthand + ", " + name
			}
			byDefault := f.DefValue
			if slices.Contains([]string{"false", "0", "[]"}, byDefault) {
				byDefault = ""
			}
			fmt.Fprintf(b, "| %s | %s | %s |\n", Code(name), Code(byDefault), strings.ReplaceAll(usage, "\n", " "))
		})
		b.WriteString("\n")
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(b, "It also takes the flags of %s.\n\n", Code(c.Parent().CommandPath()))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
}

// Code returns a text in backquotes for a table of Markdown, or "" for no text.
func Code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}
