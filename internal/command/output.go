package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Format is the value of --output, one of its words.
type Format struct {
	Word  string
	words []string
}

// OutputFlag adds --output to a command. The first word is the default.
func OutputFlag(c *cobra.Command, words ...string) *Format {
	f := &Format{words[0], words}
	c.PersistentFlags().VarP(f, "output", "o", "format of the result")
	// It cannot fail, because the flag exists.
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	return f
}

// String implements pflag.Value.
func (f *Format) String() string { return f.Word }

// Set implements pflag.Value.
func (f *Format) Set(word string) error {
	if !slices.Contains(f.words, word) {
		return fmt.Errorf("want %s", strings.Join(f.words, " or "))
	}
	f.Word = word
	return nil
}

// Type implements pflag.Value.
func (f *Format) Type() string { return strings.Join(f.words, "|") }

// Print prints a value as JSON if that is the format, else as text does.
func (f *Format) Print(w io.Writer, v any, text func() error) error {
	if f.Word == "json" {
		return PrintJSON(w, v)
	}
	return text()
}

// PrintJSON prints a value as indented JSON.
func PrintJSON(w io.Writer, v any) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	out.SetIndent("", "  ")
	return out.Encode(v)
}
