package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/migrate"
)

func (p *program) migrateSpring() *cobra.Command {
	c := &cobra.Command{
		Use:   "spring FILE",
		Short: "Convert the limits of Spring Cloud Gateway",
		Long: `extauthz migrate spring converts the routes of an application.yml that have the filter RequestRateLimiter.
It prints a rule file with a policy of ext_authz, the settings that belong to it, and the routes of Envoy.
FILE can be - for standard input.

A KeyResolver is Java code, which this command cannot read. --key tells by what it limits: owner (of the API key,
the default), address, header:NAME or query:NAME. BEAN=KEY is for one bean, KEY alone for all others.

A route without an equivalent is an error with its position and what to do by hand; the rest is converted.
The exit code is 1 then.`,
		Example: `  extauthz migrate spring application.yml >rules.yaml
  extauthz migrate spring --key userKeyResolver=header:x-user --key address -w rules application.yml`,
		Args: wants(cobra.ExactArgs(1), "one file or -, for example: extauthz migrate spring application.yml"),
	}
	domain := c.Flags().String("domain", "gateway", "the domain of the policy")
	given := c.Flags().StringArray("key", nil, "`[BEAN=]KEY` by what KeyResolver beans limit: owner, address, "+
		"header:NAME or query:NAME;\nmay be repeated (default owner)")
	flags := conversionFlags(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *domain == "" {
			return usage("--domain is empty: want a name, such as gateway")
		}
		o := migrate.SpringOptions{Domain: *domain, Keys: map[string]migrate.SpringKey{}}
		for _, text := range *given {
			bean, kind, named := strings.Cut(text, "=")
			if !named {
				bean, kind = "", text
			}
			key, err := migrate.ParseSpringKey(kind)
			if err != nil {
				return usage("--key %q: %w", text, err)
			}
			o.Keys[bean] = key
		}
		source, err := p.readSource(args[0], migrate.SpringKind())
		if err != nil {
			return err
		}
		return p.finish(migrate.Spring(source, o), flags, nil)
	}
	return c
}
