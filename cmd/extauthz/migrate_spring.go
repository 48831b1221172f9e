package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/migrate"
	"github.com/extauthz/extauthz/internal/replay"
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
The exit code is 1 then.

With --old and --new it also sends a sample of HTTP requests to the old gateway and to an Envoy that asks extauthz, one
after the other. It compares the status and the headers X-RateLimit-Remaining, -Replenish-Rate, -Burst-Capacity and
-Requested-Tokens. The sample uses up limits: give gateways without clients. It is made from the routes, or read from
--requests, with lines such as {"method":"GET","path":"/orders/1","headers":{"x-api-key":"..."}}.
A difference that docs/migration/from-spring-cloud-gateway.md does not list makes the exit code 1.`,
		Example: `  extauthz migrate spring application.yml >rules.yaml
  extauthz migrate spring --key userKeyResolver=header:x-user --key address -w rules application.yml
  extauthz migrate spring --old http://127.0.0.1:8080 --new http://127.0.0.1:10000 --requests sample application.yml
  extauthz migrate spring --old http://127.0.0.1:8080 --new http://127.0.0.1:10000 -H x-api-key:$KEY application.yml`,
		Args: wants(cobra.ExactArgs(1), "one file or -, for example: extauthz migrate spring application.yml"),
	}
	domain := c.Flags().String("domain", "gateway", "the domain of the policy")
	given := c.Flags().StringArray("key", nil, "`[BEAN=]KEY` by what KeyResolver beans limit: owner, address, "+
		"header:NAME or query:NAME;\nmay be repeated (default owner)")
	fields := c.Flags().StringArrayP("header", "H", nil, "a `HEADER` of each request of the sample, as NAME: VALUE; may "+
		"be repeated")
	flags, services := conversionFlags(c), compareFlags(c, overHTTP())
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
		if err := services.check(); err != nil {
			return err
		}
		headers, err := readHeaders(*fields)
		if err != nil {
			return err
		}
		source, err := p.readSource(args[0], migrate.SpringKind())
		if err != nil {
			return err
		}
		converted := migrate.Spring(source, o)
		compared, err := p.compareGateways(c.Context(), services, converted.Gateway, headers)
		if err != nil {
			return err
		}
		return p.finish(converted, flags, compared)
	}
	return c
}

// readHeaders reads the headers of the sample. An error shows no value, which may be a secret.
func readHeaders(fields []string) (map[string]string, error) {
	headers := map[string]string{}
	for i, field := range fields {
		name, value, ok := strings.Cut(field, ":")
		if !ok {
			return nil, usage("--header number %d (not shown, because it may be a secret): want NAME: VALUE", i+1)
		}
		value = strings.TrimSpace(value)
		if err := replay.CheckHeader(name, value); err != nil {
			return nil, usage("--header number %d: %w", i+1, err)
		}
		headers[strings.ToLower(name)] = value
	}
	return headers, nil
}

// compareGateways sends a sample to both gateways. It returns nil if none were given.
func (p *program) compareGateways(ctx context.Context, s services, g migrate.SpringGateway, headers map[string]string,
) (*comparison, error) {
	if *s.old == "" {
		if len(headers) > 0 {
			return nil, usage("--header needs --old and --new")
		}
		return nil, nil
	}
	generate := func() ([]*replay.HTTPRequest, error) {
		if len(headers) == 0 && g.NeedsKey() {
			return nil, usage("a route limits by the owner of an API key, so the sample needs one: give --header " +
				"\"x-api-key: KEY\", or --requests FILE")
		}
		return replay.GenerateHTTP(g, headers, sampleWord()), nil
	}
	read := func(name string, from io.Reader) ([]*replay.HTTPRequest, error) {
		requests, err := replay.ReadHTTP(name, from)
		for _, r := range requests {
			r.AddHeaders(headers)
		}
		return requests, err
	}
	return compareSample(ctx, p, s, read, generate, func(ctx context.Context, requests []*replay.HTTPRequest,
		progress func(sent int),
	) (*replay.Report, error) {
		return replay.CompareHTTP(ctx, replay.HTTPConfig{Old: *s.old, New: *s.new, Gateway: g, Progress: progress}, requests)
	})
}
