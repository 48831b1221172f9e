package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/testenv"
)

// TestReference compares docs/reference/settings.md and cli.md with the settings and subcommands. `make reference`
// writes the pages.
func TestReference(t *testing.T) {
	testenv.CheckPage(t, "docs/reference/settings.md", settingsTables(), *update)
	var commands strings.Builder
	eachCommand((&program{}).root(), func(c *cobra.Command) { writeCommand(&commands, c) })
	testenv.CheckPage(t, "docs/reference/cli.md", commands.String(), *update)
}

// TestExamplesOfSettings reads the example of every setting, and all together.
func TestExamplesOfSettings(t *testing.T) {
	all := service.Environment{}
	for _, s := range service.List() {
		if s.Example == "" {
			t.Errorf("%s has no example", s.Name)
		}
		all[s.Name] = s.Example
	}
	if _, err := service.ReadSettings(all); err != nil {
		t.Error(err)
	}
}

// TestExamplesOfCommands parses every example of a subcommand: its flags and its arguments.
func TestExamplesOfCommands(t *testing.T) {
	parsed := 0
	for _, example := range regexp.MustCompile(`\bextauthz ([^)|<>\n]*)`).FindAllStringSubmatch(allExamples(), -1) {
		c, args, err := (&program{}).root().Find(strings.Fields(example[1]))
		if err == nil {
			err = c.ParseFlags(args)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", example[0], err)
		}
		parsed++
	}
	if parsed < 15 {
		t.Errorf("parsed %d examples", parsed)
	}
}

func allExamples() string {
	var b strings.Builder
	eachCommand((&program{}).root(), func(c *cobra.Command) { b.WriteString(c.Example + "\n") })
	return b.String()
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

// settingsTables returns a table of settings for each group.
func settingsTables() string {
	var b strings.Builder
	for i, s := range service.List() {
		if s.Group != "" {
			if i > 0 {
				b.WriteString("\n")
			}
			fmt.Fprintf(&b, "## %s\n\n| variable | takes | default | example | meaning |\n|---|---|---|---|---|\n", s.Group)
		}
		name := code(s.Name)
		if s.File {
			name += " (`_FILE`)"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", name, takes(s.Name), code(s.Default), code(s.Example), s.Meaning)
	}
	return b.String()
}

// takes returns the values that a setting accepts, from its error for a wrong value, or "any text" without an error.
func takes(name string) string {
	var wants []string
	for _, wrong := range []string{"no such thing", "-1", "0", "-1s", "0s"} {
		_, err := service.ReadSettings(service.Environment{name: wrong})
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
			fmt.Fprintf(b, "| %s | %s | %s |\n", code(name), code(byDefault), strings.ReplaceAll(usage, "\n", " "))
		})
		b.WriteString("\n")
	}
	if c.HasAvailableInheritedFlags() {
		fmt.Fprintf(b, "It also takes the flags of %s.\n\n", code(c.Parent().CommandPath()))
	}
	if c.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimPrefix(c.Example, "  "), "\n  ", "\n"))
	}
}

// code returns a text in backquotes for a table of Markdown, or "" for no text.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}
