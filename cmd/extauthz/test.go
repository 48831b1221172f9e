package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/policytest"
	"github.com/extauthz/extauthz/internal/poll"
	"github.com/extauthz/extauthz/internal/strictyaml"
)

// testFlags are the flags of extauthz test.
type testFlags struct {
	output   *command.Format
	coverage int
	watch    bool
	init     string
}

func (p *program) test() *cobra.Command {
	c := &cobra.Command{
		Use:   "test FILE...",
		Short: "Test rules and policies with requests at times of a virtual clock",
		Long: `extauthz test runs the tests in each FILE: requests of either API, and what is expected of each. It decides
them as the service would, from memory, without a service and without waiting. docs/testing.md describes the format.
It uses the same environment variables as extauthz serve, such as DEFAULT_ALGORITHM.

For a request with another outcome than expected, it prints the rule that decided and the usage of each bucket.
At the end it lists the rules that no test hits. The exit code is 1 if a test fails or a file cannot be run.

With --init, the arguments are rule files or directories. It writes a first file of tests, which pass: for each
rule as many hits as its limit allows, and one more.`,
		Example: `  extauthz test shop.test
  extauthz test --watch shop.test
  extauthz test -o junit --coverage 80 tests/shop.test tests/login.test >report.xml
  extauthz test --init shop.test rules`,
		Args: command.Wants(cobra.MinimumNArgs(1), "a file with tests, for example: extauthz test shop.test"),
	}
	var f testFlags
	c.Flags().IntVar(&f.coverage, "coverage", 0, "exit code 1 if the tests hit fewer than this `PERCENT` of the rules")
	c.Flags().BoolVar(&f.watch, "watch", false, "run again after each change of a test or rule file, until Ctrl-C")
	c.Flags().StringVar(&f.init, "init", "", "write a first `FILE` with tests of the rules that follow, - for standard output")
	f.output = command.OutputFlag(c, "text", "json", "junit")
	c.RunE = func(c *cobra.Command, paths []string) error {
		for _, path := range paths {
			if info, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				return command.Usage("there is no file or directory %s", path)
			} else if err == nil && info.IsDir() && f.init == "" {
				return command.Usage("%s is a directory: name its files with tests, for example: extauthz test %s", path,
					filepath.Join(path, "*.test"))
			}
		}
		ctx, stop := command.UntilInterrupted(c.Context())
		defer stop()
		switch {
		case f.coverage < 0 || f.coverage > 100:
			return command.Usage("--coverage %d: want 0 to 100", f.coverage)
		case f.init != "":
			return p.firstTests(ctx, f.init, paths)
		case f.watch && f.output.Word != "text":
			return command.Usage("--watch prints text: leave out -o %s", f.output.Word)
		case f.watch:
			return p.watchTests(ctx, &f, paths)
		}
		return p.runTests(ctx, &f, paths)
	}
	return c
}

// runTests runs files of tests once, and prints the report.
func (p *program) runTests(ctx context.Context, f *testFlags, files []string) (err error) {
	progress := p.progress()
	report := policytest.Run(ctx, files, func(s *policytest.Suite) {
		progress(fmt.Sprintf("%s: %d tests", s.File, len(s.Tests)))
	})
	progress("")
	switch f.output.Word {
	case "json":
		err = command.PrintJSON(p.Stdout, report)
	case "junit":
		err = report.WriteJUnit(p.Stdout)
	default:
		var b bytes.Buffer
		report.WriteText(&b, p.paint)
		_, err = p.Stdout.Write(b.Bytes())
	}
	if c := &report.Coverage; err == nil && report.OK && c.Percent() < f.coverage {
		return fmt.Errorf("the tests hit %d %% of the rules: --coverage wants %d %%", c.Percent(), f.coverage)
	}
	return errors.Join(err, command.Reported(report.OK))
}

// watchTests runs files of tests, and again after each change of one of their files, until ctx is done.
func (p *program) watchTests(ctx context.Context, f *testFlags, files []string) error {
	follower := poll.New(policytest.MaxFile, func() ([]string, error) { return policytest.Inputs(files), nil })
	state := func(r poll.Reading) (s string) {
		for i := range r.Files {
			s += r.Files[i].Name + " " + r.Files[i].Generation() + "\n"
		}
		return s
	}
	last := ""
	run := func(r poll.Reading, _ bool) {
		if s := state(r); s != last && ctx.Err() == nil {
			last = s
			if err := p.runTests(ctx, f, files); err != nil && !errors.Is(err, command.ErrReported) {
				fmt.Fprintln(p.Stderr, err)
			}
			fmt.Fprintf(p.Stdout, "%s, waiting for a change; Ctrl-C ends\n\n", time.Now().Format(time.TimeOnly))
		}
	}
	run(follower.Load(), false)
	follower.Run(ctx, run)
	return nil
}

// firstTests writes a first file of tests for rules.
func (p *program) firstTests(ctx context.Context, path string, rules []string) error {
	s, err := p.readSettings()
	if err != nil {
		return err
	}
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
	if err = errors.Join(err, file.Close()); err == nil {
		fmt.Fprintf(p.Stdout, "%s: run it with: extauthz test %s\n", path, path)
	}
	return err
}

// paint returns a text in a color, if the terminal may show colors.
func (p *program) paint(text string, color int) string {
	if !p.Color {
		return text
	}
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", color, text)
}

// progress returns a function that shows a line on the terminal while a command runs for more than a second. "" removes
// the line.
func (p *program) progress() func(line string) {
	next, shown := time.Now().Add(time.Second), false
	return func(line string) {
		now := time.Now()
		if !p.Terminal || line == "" && !shown || line != "" && now.Before(next) {
			return
		}
		const step = 100 * time.Millisecond
		next, shown = now.Add(step), line != ""
		fmt.Fprint(p.Stderr, "\r\x1b[K"+strings.TrimSpace(line))
	}
}
