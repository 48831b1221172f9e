package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// format is the value of --output, one of its words.
type format struct {
	word  string
	words []string
}

// outputFlag adds --output to a command. The first word is the default.
func outputFlag(c *cobra.Command, words ...string) *format {
	f := &format{words[0], words}
	c.PersistentFlags().VarP(f, "output", "o", "format of the result")
	// It cannot fail, because the flag exists.
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

// printJSON prints a value as indented JSON.
func printJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
