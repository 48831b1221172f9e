package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

func (p *program) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema [KEY]",
		Short: "Print the JSON Schema of rule files, or explain one of their keys",
		Long: `extauthz schema prints the JSON Schema of rule files.
An editor with this schema completes keys, explains them, and marks mistakes. extauthz check finds more mistakes.
yaml-language-server finds the schema by a comment in the first line of a rule file:

    # yaml-language-server: $schema=../extauthz.schema.json

The path is relative to the rule file. Keep the schema outside the rule directory, because every file there is read
as a rule file.

With a KEY, it prints the type, default and meaning of that key, and the keys below it.
KEY is a path such as authz.credentials.jwt. It may leave out keys: authz.jwt is the same key.
A dot is the whole file.`,
		Example: `  extauthz schema >extauthz.schema.json
  extauthz schema authz.jwt
  extauthz schema rate_limit.burst`,
		Args: command.Wants(cobra.MaximumNArgs(1), "one key at most, such as authz.jwt"),
		ValidArgsFunction: func(*cobra.Command, []string, string) (paths []cobra.Completion, _ cobra.ShellCompDirective) {
			for _, f := range file.Reference().All()[1:] {
				paths = append(paths, cobra.CompletionWithDesc(f.Path, f.Doc))
			}
			return paths, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 {
				text, err := explain(file.Reference(), args[0], p.Width)
				if err != nil {
					return err
				}
				_, err = fmt.Fprint(p.Stdout, text)
				return err
			}
			schema, err := file.Schema()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.Stdout, "%s\n", schema)
			return err
		},
	}
}

// explain returns the type, default and meaning of the key of rule files that find finds, or a list of several.
func explain(rules *strictyaml.Field, path string, width int) (string, error) {
	var b strings.Builder
	switch found := find(rules, path); len(found) {
	case 0:
		var names []string
		for _, f := range rules.All() {
			names = append(names, f.Name())
		}
		last := path[strings.LastIndexByte(path, '.')+1:]
		return "", command.Usage("rule files have no key %s%s", suggest.Quoted(path), suggest.Meant(last, names...))
	case 1:
		printField(&b, found[0], width)
	default:
		fmt.Fprintf(&b, "%d keys match %s (* is required):\n", len(found), path)
		printFields(&b, found, width, func(f *strictyaml.Field) string { return f.Path })
	}
	return b.String(), nil
}

// find returns the key at a path, or all keys with the last name of the path below its other names, in this order.
func find(rules *strictyaml.Field, path string) (found []*strictyaml.Field) {
	if f := rules.At(path); f != nil {
		return []*strictyaml.Field{f}
	}
	names := strings.Split(path, ".")
	for _, f := range rules.All() {
		left := names
		for name := range strings.SplitSeq(f.Path, ".") {
			if len(left) > 0 && name == left[0] {
				left = left[1:]
			}
		}
		if len(left) == 0 && f.Name() == names[len(names)-1] {
			found = append(found, f)
		}
	}
	return found
}

func printField(b *strings.Builder, f *strictyaml.Field, width int) {
	fmt.Fprintf(b, "%s: %s\n", cmp.Or(f.Path, "a rule file"), plain(f.Type))
	for _, tag := range []struct{ name, text string }{{"default", f.Default}, {"example", f.Example}} {
		if tag.text != "" {
			fmt.Fprintf(b, "%s: %s\n", tag.name, tag.text)
		}
	}
	for _, text := range []string{f.Doc, plain(f.Note)} {
		if text != "" {
			fmt.Fprintf(b, "\n%s\n", text)
		}
	}
	if keys := f.Keys(); len(keys) > 0 {
		b.WriteString("\nKeys (* is required):\n")
		printFields(b, keys, width, (*strictyaml.Field).Name)
		for _, sentence := range f.Choices() {
			b.WriteString(plain(sentence) + "\n")
		}
	}
}

func printFields(b *strings.Builder, fields []*strictyaml.Field, width int, name func(*strictyaml.Field) string) {
	var rows [][]string
	for _, f := range fields {
		required, meaning := "", f.Doc
		if f.Required {
			required = "*"
		}
		if f.Default != "" {
			meaning += " (default " + f.Default + ")"
		}
		rows = append(rows, []string{"  " + name(f) + required, plain(f.Type), meaning})
	}
	_ = command.PrintTable(b, width, rows) // a strings.Builder never fails
}

// plain returns Markdown for a terminal: without backquotes, and with blocks of code indented.
func plain(markdown string) string {
	var b strings.Builder
	code := false
	for line := range strings.Lines(markdown) {
		switch {
		case strings.HasPrefix(line, "```"):
			code = !code
		case code:
			b.WriteString("    " + line)
		default:
			b.WriteString(strings.ReplaceAll(line, "`", ""))
		}
	}
	return b.String()
}
