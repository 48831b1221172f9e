package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/extauthz/extauthz/internal/certs"
	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
)

// called runs the program by the name it was called by. The image has links with the names of the binaries of
// envoyproxy/ratelimit. The tools among them have its flags and exit codes; `ratelimit` is extauthz itself.
func (p *program) called(name string, args []string) int {
	switch name {
	case "ratelimit_config_check":
		return p.byFlags(name, args, p.configCheck)
	case "ratelimit_client":
		return p.byFlags(name, args, p.ratelimitClient)
	}
	return p.run(args)
}

// byFlags runs a command that takes flags as envoyproxy/ratelimit does, with one dash or two. define adds the flags,
// and returns what to do with them. A wrong flag is exit code 2, as there.
func (p *program) byFlags(name string, args []string, define func(*flag.FlagSet) func() error) int {
	p.Stdout, p.Stderr = settings.HideSecrets(p.Stdout), settings.HideSecrets(p.Stderr)
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(p.Stderr)
	run := define(flags)
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return command.ExitOK
	case err != nil: // Parse has printed it
		return command.ExitUsage
	case flags.NArg() > 0:
		fmt.Fprintf(p.Stderr, "%s: takes only flags, not %q\n", name, flags.Args())
		return command.ExitUsage
	}
	err := run()
	if err == nil {
		return command.ExitOK
	}
	if !errors.Is(err, command.ErrReported) {
		fmt.Fprintf(p.Stderr, "%s: %v\n", name, err)
	}
	return command.ExitFailed
}

// configCheck is ratelimit_config_check: it checks a rule directory.
func (p *program) configCheck(flags *flag.FlagSet) func() error {
	dir := flags.String("config_dir", "", "path to directory containing rate limit configs")
	merge := flags.Bool("merge_domain_configs", false,
		"whether to merge configurations, referencing the same domain")
	return func() error {
		s, err := p.readSettings()
		if err != nil {
			return err
		}
		if *dir == "" {
			fmt.Fprintf(p.Stderr, "%s: want -config_dir\n", flags.Name())
			flags.Usage()
			return command.ErrReported // exit code 1, as there
		}
		if _, err := os.ReadDir(*dir); err != nil {
			return fmt.Errorf("-config_dir: %w", err)
		}
		cfg := service.RuleConfig(s)
		cfg.MergeDomains = *merge
		result := checkRules([]string{*dir}, p.Stdin, cfg, 0)
		result.print(p.Stdout, p.Stderr)
		if !result.OK {
			return command.ErrReported
		}
		fmt.Fprintln(p.Stdout, "all rate limit configs ok")
		return nil
	}
}

// ratelimitClient is ratelimit_client: it sends one request of one hit.
func (p *program) ratelimitClient(flags *flag.FlagSet) func() error {
	client := service.Client{Timeout: 10 * time.Second} // there is no flag for it
	var files certs.ClientFiles
	req := &rlsv3.RateLimitRequest{HitsAddend: 1}
	flags.StringVar(&client.Address, "dial_string", "localhost:8081", "url of ratelimit server in <host>:<port> form")
	flags.StringVar(&req.Domain, "domain", "", "rate limit configuration domain to query")
	flags.Func("descriptors", "descriptor list to query in <key>=<value>,<key>=<value>,... form; may be repeated",
		command.DescriptorTo(&req.Descriptors))
	secured := flags.Bool("grpc-use-tls", false, "Use TLS for connection to server")
	flags.StringVar(&files.CA, "grpc-server-ca-file", "", "path to the server CA file for TLS connection")
	flags.StringVar(&files.Cert, "grpc-cert-file", "", "path to the client cert file for TLS connection")
	flags.StringVar(&files.Key, "grpc-key-file", "", "path to the client key for TLS connection")
	tracing := flags.String("oltp-protocol", "", "no effect: this client exports no traces")
	return func() error {
		if *secured {
			client.TLS = &files
		}
		if *tracing != "" {
			fmt.Fprintln(p.Stderr, "ratelimit_client: -oltp-protocol has no effect: this client exports no traces")
		}
		res := new(rlsv3.RateLimitResponse)
		err := client.Call(context.Background(), rlsv3.RateLimitService_ShouldRateLimit_FullMethodName, req, res)
		if err == nil {
			_, err = fmt.Fprintf(p.Stdout, "response: %s\n", res)
		}
		return err
	}
}
