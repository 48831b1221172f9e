package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/migrate"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

func (p *program) migrateRatelimit() *cobra.Command {
	c := &cobra.Command{
		Use:   "ratelimit [PATH...]",
		Short: "List what changes for rules and settings of envoyproxy/ratelimit",
		Long: `extauthz migrate ratelimit checks rule files and settings of envoyproxy/ratelimit. Both stay as they are.
It lists what becomes of each variable, the mistakes that envoyproxy/ratelimit ignores, and what will change.
Each PATH is a directory, a file, or - for standard input. Without one, only the variables are checked.

The variables are those of --env-file and --env; those of this process do not count.
The exit code is 1 if the service would refuse to start with these rules or settings.` + compareHelp,
		Example: `  extauthz migrate ratelimit --env-file ratelimit.env config
  extauthz migrate ratelimit --env REDIS_TYPE=SINGLE --env USE_STATSD=false config
  extauthz migrate ratelimit --old 127.0.0.1:8081 --new 127.0.0.1:9081 config`,
	}
	files := c.Flags().StringArray("env-file", nil, "read variables from this `FILE` of NAME=VALUE lines; may be repeated")
	variables := c.Flags().StringArrayP("env", "e", nil, "a variable as `NAME=VALUE`; may be repeated")
	output, services := outputFlag(c, "text", "json"), compareFlags(c, overGRPC())
	c.RunE = func(c *cobra.Command, paths []string) error {
		if err := services.check(); err != nil {
			return err
		}
		env, err := readVariables(*files, *variables)
		if err != nil {
			return err
		}
		if len(paths) == 0 && len(env) == 0 {
			return usage("want a directory, a file or -, or variables, for example: extauthz migrate ratelimit config")
		}
		result := p.migration(env, paths)
		result.Comparison, err = p.compare(c.Context(), services, result.set.Domains, result.strict)
		if err != nil {
			return err
		}
		result.OK = result.OK && result.Comparison.ok()
		if output.word == "json" {
			return errors.Join(printJSON(p.stdout, result), reported(result.OK))
		}
		result.print(p.stdout, p.stderr)
		result.Comparison.show(p.stdout)
		return reported(result.OK)
	}
	return c
}

// maxEnvironment bounds an env file.
const maxEnvironment = 1 << 20

// readVariables reads the variables of env files and those of the command line, which win. No error shows a value.
func readVariables(files, variables []string) (service.Environment, error) {
	env := service.Environment{}
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			return nil, usage("%w", err)
		}
		content, err := io.ReadAll(io.LimitReader(f, maxEnvironment+1))
		_ = f.Close() // nothing was written
		if err == nil && len(content) > maxEnvironment {
			err = fmt.Errorf("%s is larger than 1 MB: want NAME=VALUE lines", path)
		}
		read, mistakes := migrate.Variables(path, string(content))
		if err = errors.Join(err, mistakes); err != nil {
			return nil, err
		}
		for name, value := range read {
			env[name] = value
		}
	}
	for i, pair := range variables {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usage("--env number %d (not shown, because it may be a secret): want NAME=VALUE", i+1)
		}
		env[name] = value
	}
	return env, nil
}

// migration is the result of extauthz migrate ratelimit, as -o json prints it.
type migration struct {
	OK         bool                      `json:"ok"` // the service starts
	Settings   []service.MigratedSetting `json:"settings"`
	Problems   []problem                 `json:"problems"`
	Changes    []migrate.Change          `json:"changes"`
	Comparison *comparison               `json:"comparison,omitempty"`

	set    rules.Set
	found  rules.Problems
	strict bool
}

// migration checks rule files and settings.
func (p *program) migration(env service.Environment, paths []string) *migration {
	m := &migration{OK: true, Changes: []migrate.Change{}}
	settings, s := env.Migrate()
	m.Settings = append([]service.MigratedSetting{}, settings...)
	m.set, m.found = file.Check(paths, p.stdin, s.RuleConfig())
	m.Problems = problemsOf(m.found)
	m.strict = s.Compatibility == "strict"
	m.Changes = append(m.Changes, migrate.Ratelimit(m.set.Domains, migrate.RatelimitOptions{
		Strict:           m.strict,
		DefaultAlgorithm: s.DefaultAlgorithm,
		Set:              func(variable string) bool { return env[variable] != "" },
	})...)
	m.OK = !m.found.HasErrors()
	for _, setting := range m.Settings {
		m.OK = m.OK && setting.Verdict != service.Refused
	}
	return m
}

// print prints the result as text: mistakes in rule files to stderr, everything else to stdout.
func (m *migration) print(stdout, stderr io.Writer) {
	if len(m.Settings) > 0 {
		fmt.Fprintln(stdout, "Settings:")
		w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
		for _, s := range m.Settings {
			line := fmt.Sprintf("  %s\t%s", s.Verdict, s.Name)
			if s.Reason != "" {
				line += "\t" + s.Reason
			}
			fmt.Fprintln(w, line)
		}
		_ = w.Flush() // an error means that the reader has gone
		fmt.Fprintln(stdout)
	}
	if len(m.found) > 0 {
		fmt.Fprintln(stderr, m.found.Error())
	}
	if m.found.HasErrors() {
		fmt.Fprintln(stdout, "Rules: they have mistakes")
		return
	}
	if len(m.set.Domains) > 0 {
		fmt.Fprintf(stdout, "Rules: ok, %s. They stay as they are.\n\n", suggest.Counted(len(m.set.Domains), "domain"))
	}
	if len(m.Changes) > 0 {
		fmt.Fprintln(stdout, "What changes, by the rows of docs/compatibility.md:")
	}
	for _, c := range m.Changes {
		fmt.Fprintf(stdout, "  %s\n      now: %s\n", c.Row, c.Here)
		if len(c.Places) > 0 {
			fmt.Fprintf(stdout, "      at: %s\n", someOf(c.Places))
		}
		if c.Keep != "" {
			fmt.Fprintf(stdout, "      to keep it: %s\n", c.Keep)
		}
	}
}

// someOf returns the first positions of a list.
func someOf(places []string) string {
	const most = 5
	if len(places) <= most {
		return strings.Join(places, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(places[:most], ", "), len(places)-most)
}
