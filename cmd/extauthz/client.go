package main

import (
	"fmt"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
)

func (p *program) client() *cobra.Command {
	c := &cobra.Command{
		Use:   "client",
		Short: "Send one request to a rate limit service",
		Long: "extauthz client sends one ShouldRateLimit call over gRPC, as Envoy does, and prints the answer as JSON.\n" +
			"The call counts. The exit code is 0 for every answer, 1 without one.",
		Example: "  extauthz client --domain shop --descriptor user=ann --descriptor action=buy,user=ann\n" +
			"  extauthz client --address limits:8081 --tls --tls-ca ca.crt --domain shop --descriptor user=ann",
		Args: command.NoArguments(""),
	}
	client := service.Client{}
	flags := c.Flags()
	flags.StringVar(&client.Address, "address", "localhost:8081", "`HOST:PORT` of the service, or unix:PATH")
	req := new(rlsv3.RateLimitRequest)
	flags.StringVar(&req.Domain, "domain", "", "`DOMAIN` of the rules")
	flags.Func("descriptor", "a descriptor, as `KEY=VALUE,...`; may be repeated", command.DescriptorTo(&req.Descriptors))
	flags.Uint32Var(&req.HitsAddend, "hits", 1, "how many hits the request counts as")
	secured := command.AddTLSFlags(flags)
	flags.DurationVar(&client.Timeout, "timeout", probeTimeout, "maximum wait for the answer")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case req.Domain == "":
			return command.Usage("missing --domain DOMAIN")
		case req.Descriptors == nil:
			return command.Usage("missing --descriptor KEY=VALUE,...")
		case client.Timeout <= 0:
			return command.Usage("--timeout %s: want more than 0, such as 2s", client.Timeout)
		}
		var err error
		if client.TLS, err = secured.Client(); err != nil {
			return err
		}
		res, err := client.ShouldRateLimit(c.Context(), req)
		if err == nil {
			_, err = fmt.Fprintln(p.Stdout, protojson.Format(res))
		}
		return err
	}
	return c
}
