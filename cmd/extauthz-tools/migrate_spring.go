package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/tools/migrate"
)

func (p *program) migrateSpring() *cobra.Command {
	c := &cobra.Command{
		Use:   "spring FILE",
		Short: "Convert the limits of Spring Cloud Gateway",
		Long: `extauthz-tools migrate spring converts the routes of an application.yml that have the filter
RequestRateLimiter. It prints a rule file with a policy of ext_authz, the settings that belong to it, and the routes of
Envoy.
FILE can be - for standard input.

A KeyResolver is Java code, which this command cannot read. --key tells by what it limits: owner (of the API key,
the default), address, header:NAME or query:NAME. BEAN=KEY is for one bean, KEY alone for all others.

A route without an equivalent is an error with its position and what to do by hand; the rest is converted.
The exit code is 1 then.`,
		Example: `  extauthz-tools migrate spring application.yml >rules.yaml
  extauthz-tools migrate spring --key userKeyResolver=header:x-user --key address -w rules application.yml`,
		Args: command.Wants(cobra.ExactArgs(1), "one file or -, for example: extauthz-tools migrate spring application.yml"),
	}
	domain := c.Flags().String("domain", "gateway", "the domain of the policy")
	keys, flags := addKeyFlag(c), conversionFlags(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if *domain == "" {
			return command.Usage("--domain is empty: want a name, such as gateway")
		}
		converted, err := p.springFile(args[0], *domain, *keys)
		if err != nil {
			return err
		}
		return p.finish(converted, flags)
	}
	return c
}

func addKeyFlag(c *cobra.Command) *[]string {
	return c.Flags().StringArray("key", nil, "`[BEAN=]KEY` by what KeyResolver beans limit: owner, address, "+
		"header:NAME or query:NAME;\nmay be repeated (default owner)")
}

// springFile converts a file, by the values of --key.
func (p *program) springFile(path, domain string, keys []string) (*migrate.Converted, error) {
	o := migrate.SpringOptions{Domain: domain, Keys: map[string]migrate.SpringKey{}}
	for _, text := range keys {
		bean, kind, named := strings.Cut(text, "=")
		if !named {
			bean, kind = "", text
		}
		key, err := migrate.ParseSpringKey(kind)
		if err != nil {
			return nil, command.Usage("--key %q: %w", text, err)
		}
		o.Keys[bean] = key
	}
	source, err := p.readSource(path, migrate.SpringKind())
	if err != nil {
		return nil, err
	}
	return migrate.Spring(source, o), nil
}
