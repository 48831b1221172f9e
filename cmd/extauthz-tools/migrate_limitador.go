package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/tools/migrate"
)

func (p *program) migrateLimitador() *cobra.Command {
	c := &cobra.Command{
		Use:   "limitador FILE",
		Short: "Convert the limits file of Limitador",
		Long: `extauthz-tools migrate limitador converts a limits file into one rule file for each namespace.
Conditions become keys with values, variables become keys. FILE can be - for standard input.

In Limitador, every limit whose conditions hold applies to a request. Here a descriptor matches one rule, by its
entries in their order. --descriptor names the entries of a descriptor that Envoy sends, once for each descriptor.
Without it, only limits that read one entry can be converted.

A limit without an equivalent is an error with its position and what to do by hand; the rest is converted.
The exit code is 1 then.`,
		Example: `  extauthz-tools migrate limitador limits.yaml >rules.yaml
  extauthz-tools migrate limitador --descriptor req.method,user_id --descriptor generic_key -w rules limits.yaml`,
		Args: command.Wants(cobra.ExactArgs(1),
			"one limits file or -, for example: extauthz-tools migrate limitador limits.yaml"),
	}
	given := c.Flags().StringArray("descriptor", nil, "the `KEYS` of a descriptor that Envoy sends, in the order of its "+
		"entries, such as\nreq.method,user_id; may be repeated")
	flags := conversionFlags(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		var descriptors [][]string
		for _, text := range *given {
			keys := strings.Split(text, ",")
			sorted := slices.Sorted(slices.Values(keys))
			if slices.Contains(keys, "") || strings.Contains(text, "*") || len(slices.Compact(sorted)) < len(keys) {
				return command.Usage("--descriptor %q: want different keys with commas between them, such as "+
					"req.method,user_id", text)
			}
			descriptors = append(descriptors, keys)
		}
		source, err := p.readSource(args[0], migrate.LimitadorKind())
		if err != nil {
			return err
		}
		return p.finish(migrate.Limitador(source, descriptors), flags)
	}
	return c
}
