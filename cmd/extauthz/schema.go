package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/pkg/rules/file"
)

func (p *program) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rule files, for editors",
		Long: `extauthz schema prints the JSON Schema of rule files. With it, an editor completes keys, explains them, and finds mistakes.
An editor that uses yaml-language-server finds the schema by a comment in the first line of a rule file:
  # yaml-language-server: $schema=../extauthz.schema.json
The path is relative to the rule file. Keep the schema outside of the directory of rules, in which every file is a rule file.
extauthz check finds more mistakes than a schema can.`,
		Example: "  extauthz schema >extauthz.schema.json",
		Args:    noArguments(""),
		RunE: func(*cobra.Command, []string) error {
			schema, err := file.Schema()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(p.stdout, "%s\n", schema)
			return err
		},
	}
}
