package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// format is the value of --output: one of some words.
type format struct {
	word  string
	words []string
}

// outputFlag adds -o to a command, with these words; the first is the default.
func outputFlag(c *cobra.Command, words ...string) *format {
	f := &format{words[0], words}
	c.PersistentFlags().VarP(f, "output", "o", "how to print the result")
	// it is there
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String implements pflag.Value.
func (f *format) String() string { return f.word }

// Set implements pflag.Value.
func (f *format) Set(word string) error {
	if !slices.Contains(f.words, word) {
		return fmt.Errorf("want %s", strings.Join(f.words, " or "))
	}
	f.word = word
	return nil
}

// Type implements pflag.Value.
func (f *format) Type() string { return strings.Join(f.words, "|") }

// printJSON prints a value for programs.
func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
