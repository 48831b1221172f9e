package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
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
				text, err := explain(file.Reference(), args[0])
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
