package main

import (
	"errors"
	"fmt"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/tools/loadgen"
	"github.com/extauthz/extauthz/tools/replay"
)

const benchHelp = `extauthz-tools bench sends many requests to a rate limit or ext_authz service, as Envoy does.
It reports how many are answered, how fast, and what they cost. The requests count, so use a service without clients.

Without --rate, each answer starts the next request, so that --in-flight requests are always in flight. With --rate,
requests are sent at fixed times, whether or not earlier ones are answered. Latency then counts from those times.

{key} in a descriptor, a path or a header becomes the key of the request, 8 digits. --keys sets how often each occurs.

--client sets whose header blocks of HTTP/2 are sent. envoy sends the path in full in each request. traced is Envoy
with tracing: another traceparent in each. deadline is grpc-go: another grpc-timeout in each. indexed repeats one block.

The output has lines that begin with

    warning   no limit was decided: no rule matches, or ext_authz refuses the request before its limits
    answers   how many have a decision; a denial is an answer. The latency is that of answers only
    errors    how many have none, by their gRPC status. The exit code is then 1
    not sent  requests of --rate that could not be sent before the end: the service is too slow for the rate
    server    its CPU, if a process of yours on this machine listens at the address. Its other work is included
    redis     its commands, with those of other clients, and those that scripts call

Ctrl-C prints the results so far.`

type benchFlags struct {
	service, domain, method, host, path, keys string
	descriptors                               []*ratelimitv3.RateLimitDescriptor
	headers                                   []string
	remote                                    bool
	tls                                       *command.TLSFlags
	plan                                      loadgen.Plan
}

func (p *program) bench() *cobra.Command {
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure a running service under load",
		Long:  benchHelp,
		Example: "  extauthz-tools bench --domain shop --descriptor user={key} --duration 10s\n" +
			"  extauthz-tools bench --domain shop --descriptor user={key} --rate 2000 --keys zipf:1000000 " +
			"--redis localhost:6379\n" +
			"  extauthz-tools bench --service ext_authz --path /v1/users/{key} --header @key.txt --address unix:/run/grpc.sock",
		Args: command.NoArguments(""),
	}
	f := &benchFlags{}
	flags := c.Flags()
	flags.StringVar(&f.plan.Address, "address", "localhost:8081", "`HOST:PORT` of the service, or unix:PATH")
	flags.BoolVar(&f.remote, "allow-remote", false, "permit an address of another machine")
	flags.StringVar(&f.service, "service", "ratelimit", "the service: ratelimit or ext_authz")
	flags.StringVar(&f.domain, "domain", "", "ratelimit: `DOMAIN` of the rules")
	flags.Func("descriptor", "ratelimit: a descriptor, as `KEY=VALUE,...`; may be repeated",
		command.DescriptorTo(&f.descriptors))
	flags.StringVar(&f.method, "method", "GET", "ext_authz: `METHOD` of the request")
	flags.StringVar(&f.host, "host", "shop.example", "ext_authz: `HOST` of the request")
	flags.StringVar(&f.path, "path", "/", "ext_authz: `PATH` of the request")
	flags.StringArrayVar(&f.headers, "header", nil, "ext_authz: a header, as `NAME:VALUE`, or @FILE with one a line; may "+
		"be repeated")
	flags.StringVar(&f.keys, "keys", "uniform:10000", "which `KEYS` the requests have: uniform:N, zipf:N (exponent 1.1) "+
		"or one")
	flags.StringVar((*string)(&f.plan.Client), "client", "envoy", "whose header blocks: envoy, traced, deadline, indexed")
	flags.IntVar(&f.plan.Connections, "connections", 4, "how many connections, at most 10000")
	flags.IntVar(&f.plan.InFlight, "in-flight", 64, "how many requests are in flight over all connections, at most 100000")
	flags.IntVar(&f.plan.Rate, "rate", 0, "how many requests a second, at most 1000000; default: as many as are answered")
	flags.DurationVar(&f.plan.Duration, "duration", 10*time.Second, "how long, at most 1h")
	flags.IntVar(&f.plan.Count, "requests", 0, "how many requests at most; default: as many as --duration permits")
	flags.DurationVar(&f.plan.Timeout, "timeout", time.Second, "maximum wait for an answer, 10ms to 1m; it is sent along")
	flags.StringVar(&f.plan.Redis, "redis", "", "`HOST:PORT` or URL of the Redis of the service, to count its commands")
	f.tls = command.AddTLSFlags(flags)
	output := command.OutputFlag(c, "text", "json")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := f.read(c.Flags().Changed("keys")); err != nil {
			return err
		}
		if p.Terminal {
			f.plan.Progress = func(s loadgen.Progress) {
				fmt.Fprintf(p.Stderr, "\r\033[K%.0f of %.0f s: %s answers/s, %s errors", s.Passed.Seconds(),
					f.plan.Duration.Seconds(), loadgen.Thousands(s.AnswersPerSecond), loadgen.Thousands(s.Errors))
			}
		}
		ctx, stop := command.UntilInterrupted(c.Context())
		defer stop()
		result, err := loadgen.Run(ctx, f.plan)
		if p.Terminal {
			fmt.Fprint(p.Stderr, "\r\033[K")
		}
		if err != nil {
			return err
		}
		err = output.Print(p.Stdout, result, func() error { return p.printBench(result) })
		return errors.Join(err, command.Reported(result.Errors == 0 && result.Answers > 0))
	}
	return c
}

// read makes the plan of the flags.
func (f *benchFlags) read(keysAreSet bool) (err error) {
	if err := replay.CheckAddress(f.plan.Address, f.remote); err != nil {
		return command.Usage("--address %w", err)
	}
	if f.plan.Redis != "" {
		o, err := loadgen.RedisOptions(f.plan.Redis)
		if err == nil && o.Network != "unix" {
			err = replay.CheckAddress(o.Addr, f.remote)
		}
		if err != nil {
			return command.Usage("--redis %w", err)
		}
	}
	switch f.service {
	case "ratelimit":
		err = f.rateLimit()
	case "ext_authz":
		err = f.check()
	default:
		return command.Usage("--service %q: want ratelimit or ext_authz", f.service)
	}
	if err != nil {
		return err
	}
	if f.plan.Keys, err = loadgen.ParseKeys(f.keys); err != nil {
		return command.Usage("--keys %q: %w", f.keys, err)
	}
	if keysAreSet && !f.plan.Message.HasKey() {
		return command.Usage("--keys needs a place for the key: write %s in a descriptor, the path or a header",
			loadgen.Placeholder)
	}
	files, err := f.tls.Client()
	if err != nil {
		return err
	}
	if err := f.plan.Check(); err != nil {
		return command.Usage("%w", err)
	}
	if files == nil {
		return nil
	}
	secured, err := certs.NewClient(*files)
	if err == nil {
		f.plan.TLS = secured.Config()
	}
	return err
}

func (f *benchFlags) rateLimit() (err error) {
	switch {
	case f.domain == "":
		return command.Usage("missing --domain DOMAIN")
	case len(f.descriptors) == 0:
		return command.Usage("missing --descriptor KEY=VALUE,...")
	case len(f.headers) > 0:
		return command.Usage("--header needs --service ext_authz")
	}
	f.plan.Message, err = loadgen.RateLimit(f.domain, f.descriptors)
	return err
}

func (f *benchFlags) check() (err error) {
	if f.domain != "" || len(f.descriptors) > 0 {
		return command.Usage("--domain and --descriptor need --service ratelimit")
	}
	r := loadgen.HTTPRequest{Method: f.method, Host: f.host, Path: f.path}
	if r.Headers, err = command.Headers(f.headers); err != nil {
		return err
	}
	f.plan.Message, err = loadgen.Check(r)
	return err
}
