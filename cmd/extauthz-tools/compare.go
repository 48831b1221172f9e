package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/tools/compatibility"
	"github.com/extauthz/extauthz/tools/migrate"
	"github.com/extauthz/extauthz/tools/replay"
)

const compareHelp = `The sample uses up limits: give services without clients.
A difference that the docs do not list makes the exit code 1.`

func (p *program) compare() *cobra.Command {
	return command.Group(&cobra.Command{
		Use:   "compare",
		Short: "Compare the decisions of two running services",
		Long: "extauthz-tools compare sends a sample of requests to two running services and compares their answers.\n" +
			compareHelp,
	}, p.compareRatelimit(), p.compareSpring())
}

func (p *program) compareRatelimit() *cobra.Command {
	c := &cobra.Command{
		Use:   "ratelimit PATH...",
		Short: "Compare two rate limit services",
		Long: `extauthz-tools compare ratelimit sends a sample of requests to two rate limit services.
It compares their answers. The new one is extauthz.
Each PATH is a directory, a file, or - for standard input, with the rules of both services.
The sample is made from these rules, up to six requests for each, or read from --requests.

The variables of --env-file and --env are those of extauthz: COMPATIBILITY decides which differences are listed.

` + compareHelp + ` The list is docs/reference/compatibility.md.`,
		Example: `  extauthz-tools compare ratelimit --old 127.0.0.1:8081 --new 127.0.0.1:9081 config
  extauthz-tools compare ratelimit --old 127.0.0.1:8081 --new 127.0.0.1:9081 -e COMPATIBILITY=strict config`,
		Args: command.Wants(cobra.MinimumNArgs(1), "a directory, a file or -, for example: config"),
	}
	variables := addVariableFlags(c)
	s := addServiceFlags(c, services{
		page: "docs/reference/compatibility.md", check: replay.CheckAddress,
	}, "`ADDRESS` of the running service to compare with: host:port of its gRPC port, or unix:PATH",
		"`ADDRESS` of a running extauthz with the new rules",
		"the sample: a `FILE` of RateLimitRequests in JSON, one a line; default: made from the rules")
	c.RunE = func(c *cobra.Command, paths []string) error {
		env, err := variables.read()
		if err != nil {
			return err
		}
		m := p.migration(env, paths)
		for _, setting := range m.Settings {
			if setting.Verdict == migrate.Refused {
				return fmt.Errorf("%s: %s", setting.Name, setting.Reason)
			}
		}
		generate := func() ([]*replay.Request, error) { return replay.Generate(m.set.Domains, sampleWord()), nil }
		return compareSample(c.Context(), p, s, m.Problems, replay.Read, generate, replay.Compare,
			replay.Config{Domains: m.set.Domains, Strict: m.strict})
	}
	return c
}

func (p *program) compareSpring() *cobra.Command {
	c := &cobra.Command{
		Use:   "spring FILE",
		Short: "Compare a Spring Cloud Gateway and Envoy",
		Long: `extauthz-tools compare spring sends a sample of HTTP requests to the old gateway and to an Envoy that asks
extauthz, one after the other. It compares the status and the headers X-RateLimit-Remaining, -Replenish-Rate,
-Burst-Capacity and -Requested-Tokens. FILE is the application.yml of the gateway, or - for standard input.
--key is that of extauthz-tools migrate spring.

The sample is made from the routes, or read from --requests, with lines such as
{"method":"GET","path":"/orders/1","headers":{"x-api-key":"..."}}.

` + compareHelp + ` The list is docs/migration/from-spring-cloud-gateway.md.`,
		Example: "  extauthz-tools compare spring --old http://127.0.0.1:8080 --new http://127.0.0.1:10000 " +
			"--requests sample application.yml\n" +
			"  extauthz-tools compare spring --old http://127.0.0.1:8080 --new http://127.0.0.1:10000 -H x-api-key:$KEY " +
			"application.yml",
		Args: command.Wants(cobra.ExactArgs(1), "one file or -, for example: application.yml"),
	}
	keys := addKeyFlag(c)
	fields := c.Flags().StringArrayP("header", "H", nil, "a `HEADER` of each request of the sample, as NAME:VALUE, or "+
		"@FILE with one a line; may be repeated")
	s := addServiceFlags(c, services{
		page: "docs/migration/from-spring-cloud-gateway.md", check: replay.CheckURL,
	}, "`URL` of the running gateway to compare with, such as http://127.0.0.1:8080",
		"`URL` of a running Envoy that asks an extauthz with the new rules",
		"the sample: a `FILE` of HTTP requests in JSON, one a line; default: made from the routes")
	c.RunE = func(c *cobra.Command, args []string) error {
		headers, err := command.Headers(*fields)
		if err != nil {
			return err
		}
		for name, value := range headers {
			if err := replay.CheckHeader(name, value); err != nil {
				return command.Usage("--header: %w", err)
			}
		}
		converted, err := p.springFile(args[0], "gateway", *keys)
		if err != nil {
			return err
		}
		gateway := converted.Gateway
		generate := func() ([]*replay.HTTPRequest, error) {
			if len(headers) == 0 && gateway.NeedsKey() {
				return nil, command.Usage("a route limits by the owner of an API key, so the sample needs one: give --header " +
					"\"x-api-key: KEY\", or --requests FILE")
			}
			return replay.GenerateHTTP(gateway, headers, sampleWord()), nil
		}
		read := func(name string, from io.Reader) ([]*replay.HTTPRequest, error) {
			requests, err := replay.ReadHTTP(name, from)
			for _, r := range requests {
				r.AddHeaders(headers)
			}
			return requests, err
		}
		return compareSample(c.Context(), p, s, converted.Problems, read, generate, replay.CompareHTTP,
			replay.Config{Gateway: gateway})
	}
	return c
}

// services are the flags of a comparison.
type services struct {
	page  string // of docs, which lists differences
	check func(address string, remote bool) error

	old, new, requests string
	remote             bool
	timeout            time.Duration
	output             *command.Format
}

// addServiceFlags adds the flags of a comparison, three of them with their help.
func addServiceFlags(c *cobra.Command, given services, older, newer, requests string) *services {
	s, flags := &given, c.Flags()
	flags.StringVar(&s.old, "old", "", older)
	flags.StringVar(&s.new, "new", "", newer)
	flags.StringVar(&s.requests, "requests", "", requests)
	flags.BoolVar(&s.remote, "allow-remote", false, "permit addresses of other machines")
	flags.DurationVar(&s.timeout, "timeout", time.Minute, "maximum time of the comparison")
	s.output = command.OutputFlag(c, "text", "json")
	c.PreRunE = func(*cobra.Command, []string) error { return s.checkFlags() }
	return s
}

func (s *services) checkFlags() error {
	if s.old == "" || s.new == "" {
		return command.Usage("--old and --new: give both")
	}
	for _, flag := range []struct{ name, address string }{{"--old", s.old}, {"--new", s.new}} {
		if err := s.check(flag.address, s.remote); err != nil {
			return command.Usage("%s %w", flag.name, err)
		}
	}
	if s.timeout <= 0 {
		return command.Usage("--timeout %s: want more than 0, such as 1m", s.timeout)
	}
	return nil
}

// comparison is the result of a comparison, as -o json prints it.
type comparison struct {
	OK bool `json:"ok"` // all differences are listed, and the rules or routes have no mistakes
	*replay.Report
	// Error is why it ended early.
	Error    string         `json:"error,omitempty"`
	Problems rules.Problems `json:"problems"`
}

// sampleWord returns a value that no client sends.
func sampleWord() string { return "migrate-" + strings.ToLower(rand.Text()[:8]) }

// compareSample reads or generates a sample, compares what both services answer to it, and prints the result. It shows
// the progress. The problems are those of the rules or routes from which the sample is made.
func compareSample[R any](ctx context.Context, p *program, s *services, problems rules.Problems,
	read func(string, io.Reader) ([]R, error), generate func() ([]R, error),
	compare func(context.Context, replay.Config, []R) (*replay.Report, error), cfg replay.Config,
) error {
	requests, err := sample(s.requests, read, generate)
	if err != nil {
		return err
	}
	c := &comparison{Report: new(replay.Report), Problems: append(rules.Problems{}, problems...)}
	if len(requests) == 0 {
		err = errors.New("there are no rules to make requests from")
	} else {
		ctx, stop := command.UntilInterrupted(ctx)
		defer stop()
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		const pause = 2 * time.Second // between two lines about the progress
		last := time.Now()
		cfg.Old, cfg.New = s.old, s.new
		cfg.Progress = func(sent int) {
			if time.Since(last) >= pause {
				last = time.Now()
				fmt.Fprintf(p.Stderr, "compared %d of %d requests\n", sent, len(requests))
			}
		}
		c.Report, err = compare(ctx, cfg, requests)
	}
	if err != nil {
		c.Error = err.Error()
	}
	c.OK = err == nil && c.Unlisted == 0 && !problems.HasErrors()
	if s.output.Word == "json" {
		return errors.Join(command.PrintJSON(p.Stdout, c), command.Reported(c.OK))
	}
	if len(problems) > 0 {
		fmt.Fprintln(p.Stderr, problems.Error())
	}
	c.show(p.Stdout, s.page)
	return command.Reported(c.OK)
}

// sample reads the sample from a file, or generates one.
func sample[R any](path string, read func(string, io.Reader) ([]R, error), generate func() ([]R, error)) ([]R, error) {
	if path == "" {
		return generate()
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, command.Usage("%w", err)
	}
	defer f.Close()
	return read(path, f)
}

// show prints the result as text. Listed differences are summed up by their row.
func (c *comparison) show(w io.Writer, page string) {
	fmt.Fprintf(w, "Compared %s: %d with the same answer\n", suggest.Counted(c.Sent, "request"), c.Same)
	if c.Bare {
		fmt.Fprintln(w, "The old service sends no statuses, so only verdicts were compared.")
	}
	listed, example := map[compatibility.Row]int{}, map[compatibility.Row]replay.Difference{}
	for _, d := range c.Differences {
		if listed[d.Row]++; listed[d.Row] == 1 {
			example[d.Row] = d
		}
	}
	for _, listing := range compatibility.Pages() {
		for _, row := range listing.Rows {
			if n := listed[row]; n > 0 {
				d := example[row]
				fmt.Fprintf(w, "Listed in %s: %s, %s\n      first: request %d, %s, %s: old %s, new %s\n", listing.Path, row,
					suggest.Counted(n, "difference"), d.Request, d.Subject, d.What, d.Old, d.New)
			}
		}
	}
	if c.Unlisted > 0 {
		c.printUnlisted(w, page)
	}
	if c.Error != "" {
		fmt.Fprintf(w, "The comparison ended early: %s\n", c.Error)
	}
}

// printUnlisted prints a table of the differences that are not listed.
func (c *comparison) printUnlisted(w io.Writer, page string) {
	const most = 50
	fmt.Fprintf(w, "Not listed in %s: %s\n", page, suggest.Counted(c.Unlisted, "difference"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  request\tof\twhat\told\tnew")
	shown := 0
	for _, d := range c.Differences {
		if d.Row == "" && shown < most {
			shown++
			fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\n", d.Request, d.Subject, d.What, d.Old, d.New)
		}
	}
	_ = table.Flush() // an error means that the reader has gone
	if c.Unlisted > shown {
		fmt.Fprintf(w, "  ... and %d more\n", c.Unlisted-shown)
	}
}
