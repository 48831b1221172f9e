package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/policytest"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

func (p *program) test() *cobra.Command {
	c := &cobra.Command{
		Use:   "test FILE...",
		Short: "Test rules and policies with requests at times of a virtual clock",
		Long: `extauthz test runs the tests in each FILE: requests of either API, and what is expected of each. It decides
them as the service would, from memory, without a service and without waiting. docs/testing.md describes the format.
It uses the same environment variables as extauthz serve, such as DEFAULT_ALGORITHM.

For a request with another outcome than expected, it prints the rule that decided and the usage of each bucket.
At the end it lists the rules that no test hits. The exit code is 1 if a test fails or a file cannot be run.

With --init, the arguments are rule files or directories. It writes a first file of tests, which pass. They send each
rule as many hits as its limit allows, and one more.`,
		Example: `  extauthz test shop.test
  extauthz test --watch shop.test
  extauthz test -o junit --coverage 80 tests/shop.test tests/login.test >report.xml
  extauthz test --init shop.test rules`,
		Args: command.Wants(cobra.MinimumNArgs(1), "a file with tests, for example: extauthz test shop.test"),
	}
	coverage := c.Flags().Int("coverage", 0, "exit code 1 if the tests hit fewer than this `PERCENT` of the rules")
	watch := c.Flags().Bool("watch", false, "run again after each change of a test or rule file, until Ctrl-C")
	first := c.Flags().String("init", "", "write a first `FILE` of tests of the rules that follow, - for standard output")
	output := command.OutputFlag(c, "text", "json", "junit")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, paths []string) error {
		if err := exist(paths); err != nil {
			return err
		}
		run := func() error { return p.runTests(ctx, s, paths, output.Word, *coverage) }
		switch {
		case *first != "":
			return p.firstTests(ctx, s, *first, paths)
		case *watch:
			return p.watchTests(ctx, paths, run)
		}
		return run()
	})
	return c
}

// runTests runs files of tests once, and prints the report. On a terminal it shows progress after a second.
func (p *program) runTests(
	ctx context.Context, s *settings.Settings, files []string, format string, coverage int,
) (err error) {
	begin, wipe := time.Now(), ""
	report := policytest.Run(ctx, s, files, func(s *policytest.Suite) {
		if p.Terminal && time.Since(begin) > time.Second {
			wipe = "\r\x1b[K"
			fmt.Fprintf(p.Stderr, "%s%s: %d tests", wipe, s.Name, s.Tests)
		}
	})
	fmt.Fprint(p.Stderr, wipe)
	switch format {
	case "json":
		err = command.PrintJSON(p.Stdout, report)
	case "junit":
		var text []byte
		text, err = xml.MarshalIndent(report, "", "  ")
		fmt.Fprintf(p.Stdout, "%s%s\n", xml.Header, text)
	default:
		report.WriteText(p.Stdout, p.Paint)
	}
	if err == nil && report.OK && report.Coverage() < coverage {
		return fmt.Errorf("the tests hit %d %% of the rules: --coverage wants %d %%", report.Coverage(), coverage)
	}
	return errors.Join(err, command.Reported(report.OK))
}

// watchTests runs files of tests, and again after each change of one of their files, until ctx is done.
func (p *program) watchTests(ctx context.Context, files []string, runAll func() error) error {
	follower := poll.New(policytest.MaxFile, func() ([]string, error) { return policytest.Inputs(files), nil })
	last := ""
	run := func(r poll.Reading, _ bool) {
		now := ""
		for i := range r.Files {
			now += r.Files[i].Name + " " + r.Files[i].Generation() + "\n"
		}
		if now == last || ctx.Err() != nil {
			return
		}
		last = now
		if err := runAll(); err != nil && !errors.Is(err, command.ErrReported) {
			fmt.Fprintln(p.Stderr, err)
		}
		fmt.Fprintf(p.Stdout, "%s, waiting for a change; Ctrl-C ends\n\n", time.Now().Format(time.TimeOnly))
	}
	run(follower.Load(), false)
	follower.Run(ctx, run)
	return nil
}

func (p *program) firstTests(ctx context.Context, s *settings.Settings, path string, rules []string) error {
	text, err := policytest.First(ctx, s, path, rules)
	if err != nil {
		return err
	}
	if path == strictyaml.Stdin {
		_, err = fmt.Fprint(p.Stdout, text)
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and is not overwritten: choose another file, or delete it", path)
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}
