package main

import (
	"fmt"
	"strings"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

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
		Args: noArguments(""),
	}
	client := service.Client{}
	flags := c.Flags()
	flags.StringVar(&client.Address, "address", "localhost:8081", "`HOST:PORT` of the service, or unix:PATH")
	domain := flags.String("domain", "", "`DOMAIN` of the rules")
	list := flags.StringArray("descriptor", nil, "a descriptor, as `KEY=VALUE,...`; may be repeated")
	hits := flags.Uint32("hits", 1, "how many hits the request counts as")
	secured := addTLSFlags(flags)
	flags.DurationVar(&client.Timeout, "timeout", probeTimeout, "maximum wait for the answer")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case *domain == "":
			return usage("missing --domain DOMAIN")
		case len(*list) == 0:
			return usage("missing --descriptor KEY=VALUE,...")
		case client.Timeout <= 0:
			return usage("--timeout %s: want more than 0, such as 2s", client.Timeout)
		}
		var err error
		if client.TLS, err = secured.client(); err != nil {
			return err
		}
		req := &rlsv3.RateLimitRequest{Domain: *domain, HitsAddend: *hits}
		if req.Descriptors, err = descriptors(*list); err != nil {
			return err
		}
		res, err := client.ShouldRateLimit(c.Context(), req)
		if err == nil {
			_, err = fmt.Fprintln(p.stdout, protojson.Format(res))
		}
		return err
	}
	return c
}

// descriptors reads the values of --descriptor.
func descriptors(list []string) (all []*ratelimitv3.RateLimitDescriptor, err error) {
	for _, text := range list {
		d, err := descriptor(text)
		if err != nil {
			return nil, usage("--descriptor %q: %w", text, err)
		}
		all = append(all, d)
	}
	return all, nil
}

// descriptor reads a descriptor in the form KEY=VALUE,...
func descriptor(text string) (*ratelimitv3.RateLimitDescriptor, error) {
	d := new(ratelimitv3.RateLimitDescriptor)
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(pair, "=")
		if !found || key == "" {
			return nil, fmt.Errorf("want KEY=VALUE, or several with commas, not %q", pair)
		}
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d, nil
}
