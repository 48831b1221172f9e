package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/compatibility"
	"github.com/extauthz/extauthz/internal/replay"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/ratelimit"
)

const compareHelp = `

With --old and --new it also sends a sample of requests to two running services and compares their answers.
The sample uses up limits: give services without clients. It is made from the rules, up to six requests for each,
or read from --requests. A difference that docs/compatibility.md does not list makes the exit code 1.`

// protocol is how the services of a comparison are asked.
type protocol struct {
	page               string // of docs, which lists differences
	old, new, requests string // the help of the flags
	check              func(address string, remote bool) error
}

// overGRPC asks rate limit services.
func overGRPC() protocol {
	return protocol{
		page: "docs/compatibility.md",
		old:  "`ADDRESS` of the running service to compare with: host:port of its gRPC port, or unix:PATH",
		new:  "`ADDRESS` of a running extauthz with the new rules",
		requests: "the sample: a `FILE` of RateLimitRequests in JSON, one a line; default: " +
			"made from the rules",
		check: replay.CheckAddress,
	}
}

// overHTTP asks gateways.
func overHTTP() protocol {
	return protocol{
		page:     "docs/migration/from-spring-cloud-gateway.md",
		old:      "`URL` of the running gateway to compare with, such as http://127.0.0.1:8080",
		new:      "`URL` of a running Envoy that asks an extauthz with the new rules",
		requests: "the sample: a `FILE` of HTTP requests in JSON, one a line; default: made from the routes",
		check:    replay.CheckURL,
	}
}

// services are the flags of a comparison.
type services struct {
	protocol
	old, new, requests *string
	remote             *bool
	timeout            *time.Duration
}

func compareFlags(c *cobra.Command, p protocol) services {
	return services{
		protocol: p,
		old:      c.Flags().String("old", "", p.old),
		new:      c.Flags().String("new", "", p.new),
		requests: c.Flags().String("requests", "", p.requests),
		remote:   c.Flags().Bool("allow-remote", false, "permit addresses of other machines"),
		timeout:  c.Flags().Duration("timeout", time.Minute, "maximum time of the comparison"),
	}
}

// check returns the mistake in the flags.
func (s services) check() error {
	if (*s.old == "") != (*s.new == "") {
		return usage("--old and --new: give both or none")
	}
	if *s.old == "" {
		if *s.requests != "" {
			return usage("--requests needs --old and --new")
		}
		return nil
	}
	for _, flag := range []struct{ name, address string }{{"--old", *s.old}, {"--new", *s.new}} {
		if err := s.protocol.check(flag.address, *s.remote); err != nil {
			return usage("%s %w", flag.name, err)
		}
	}
	if *s.timeout <= 0 {
		return usage("--timeout %s: want more than 0, such as 1m", *s.timeout)
	}
	return nil
}

// comparison is the result of a comparison. nil means that there was none.
type comparison struct {
	*replay.Report
	// Error is why it ended early.
	Error string `json:"error,omitempty"`

	page string
}

// ok reports whether all differences are listed.
func (c *comparison) ok() bool { return c == nil || c.Unlisted == 0 && c.Error == "" }

// compare sends a sample to both services. It returns nil if none were given.
func (p *program) compare(ctx context.Context, s services, domains []ratelimit.Domain, strict bool,
) (*comparison, error) {
	if *s.old == "" {
		return nil, nil
	}
	generate := func() ([]*replay.Request, error) { return replay.Generate(domains, sampleWord()), nil }
	return compareSample(ctx, p, s, replay.Read, generate, func(ctx context.Context, requests []*replay.Request,
		progress func(sent int),
	) (*replay.Report, error) {
		return replay.Compare(ctx, replay.Config{
			Old: *s.old, New: *s.new, Domains: domains, Strict: strict, Progress: progress,
		}, requests)
	})
}

// sampleWord returns a value that no client sends.
func sampleWord() string { return "migrate-" + strings.ToLower(rand.Text()[:8]) }

// compareSample reads or generates a sample, and compares what both services answer to it. It shows the progress.
func compareSample[R any](ctx context.Context, p *program, s services, read func(string, io.Reader) ([]R, error),
	generate func() ([]R, error),
	compare func(ctx context.Context, requests []R, progress func(sent int)) (*replay.Report, error),
) (*comparison, error) {
	requests, err := sample(*s.requests, read, generate)
	if err != nil {
		return nil, err
	}
	if len(requests) == 0 {
		return &comparison{Report: new(replay.Report), Error: "there are no rules to make requests from"}, nil
	}
	ctx, stop := untilInterrupted(ctx)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, *s.timeout)
	defer cancel()
	const pause = 2 * time.Second // between two lines about the progress
	last := time.Now()
	report, err := compare(ctx, requests, func(sent int) {
		if time.Since(last) >= pause {
			last = time.Now()
			fmt.Fprintf(p.stderr, "compared %d of %d requests\n", sent, len(requests))
		}
	})
	c := &comparison{Report: report, page: s.page}
	if err != nil {
		c.Error = err.Error()
	}
	return c, nil
}

// sample reads the sample from a file, or generates one.
func sample[R any](path string, read func(string, io.Reader) ([]R, error), generate func() ([]R, error)) ([]R, error) {
	if path == "" {
		return generate()
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, usage("%w", err)
	}
	defer f.Close()
	return read(path, f)
}

// show prints the result as text. Listed differences are summed up by their row.
func (c *comparison) show(w io.Writer) {
	if c == nil {
		return
	}
	fmt.Fprintf(w, "\nCompared %s: %d with the same answer\n", suggest.Counted(c.Sent, "request"), c.Same)
	if c.Bare {
		fmt.Fprintln(w, "The old service sends no statuses, so only verdicts were compared.")
	}
	listed, example := map[compatibility.Row]int{}, map[compatibility.Row]replay.Difference{}
	for _, d := range c.Differences {
		if listed[d.Row]++; listed[d.Row] == 1 {
			example[d.Row] = d
		}
	}
	for _, page := range compatibility.Pages() {
		for _, row := range page.Rows {
			if n := listed[row]; n > 0 {
				d := example[row]
				fmt.Fprintf(w, "Listed in %s: %s, %s\n      first: request %d, %s, %s: old %s, new %s\n", page.Path, row,
					suggest.Counted(n, "difference"), d.Request, d.Subject, d.What, d.Old, d.New)
			}
		}
	}
	if c.Unlisted > 0 {
		c.printUnlisted(w)
	}
	if c.Error != "" {
		fmt.Fprintf(w, "The comparison ended early: %s\n", c.Error)
	}
}

// printUnlisted prints a table of the differences that are not listed.
func (c *comparison) printUnlisted(w io.Writer) {
	const most = 50
	fmt.Fprintf(w, "Not listed in %s: %s\n", c.page, suggest.Counted(c.Unlisted, "difference"))
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
