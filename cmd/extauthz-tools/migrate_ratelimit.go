package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/tools/migrate"
)

func (p *program) migrateRatelimit() *cobra.Command {
	c := &cobra.Command{
		Use:   "ratelimit [PATH...]",
		Short: "List what changes for rules and settings of envoyproxy/ratelimit",
		Long: `extauthz-tools migrate ratelimit checks rule files and settings of envoyproxy/ratelimit. Both stay as they are.
It lists what becomes of each variable, the mistakes that envoyproxy/ratelimit ignores, and what will change.
Each PATH is a directory, a file, or - for standard input. Without one, only the variables are checked.

The variables are those of --env-file and --env; those of this process do not count.
The exit code is 1 if the service would refuse to start with these rules or settings.`,
		Example: `  extauthz-tools migrate ratelimit --env-file ratelimit.env config
  extauthz-tools migrate ratelimit --env REDIS_TYPE=SINGLE --env USE_STATSD=false config`,
	}
	variables, output := addVariableFlags(c), command.OutputFlag(c, "text", "json")
	c.RunE = func(_ *cobra.Command, paths []string) error {
		env, err := variables.read()
		if err != nil {
			return err
		}
		if len(paths) == 0 && len(env) == 0 {
			return command.Usage("want a directory, a file or -, or variables, for example: extauthz-tools migrate ratelimit " +
				"config")
		}
		result := p.migration(env, paths)
		if output.Word == "json" {
			return errors.Join(command.PrintJSON(p.Stdout, result), command.Reported(result.OK))
		}
		result.print(p.Stdout, p.Stderr)
		return command.Reported(result.OK)
	}
	return c
}

// variableFlags are the flags that give the variables of a service.
type variableFlags struct{ files, pairs *[]string }

func addVariableFlags(c *cobra.Command) variableFlags {
	return variableFlags{
		c.Flags().StringArray("env-file", nil, "read variables from this `FILE` of NAME=VALUE lines; may be repeated"),
		c.Flags().StringArrayP("env", "e", nil, "a variable as `NAME=VALUE`; may be repeated"),
	}
}

// maxEnvironment bounds an env file.
const maxEnvironment = 1 << 20

// read reads the variables of env files and those of the command line, which win. No error shows a value.
func (f variableFlags) read() (map[string]string, error) {
	env := map[string]string{}
	for _, path := range *f.files {
		file, err := os.Open(path)
		if err != nil {
			return nil, command.Usage("%w", err)
		}
		content, err := io.ReadAll(io.LimitReader(file, maxEnvironment+1))
		_ = file.Close() // nothing was written
		if err == nil && len(content) > maxEnvironment {
			err = fmt.Errorf("%s is larger than 1 MB: want NAME=VALUE lines", path)
		}
		read, mistakes := migrate.Variables(path, string(content))
		if err = errors.Join(err, mistakes); err != nil {
			return nil, err
		}
		maps.Copy(env, read)
	}
	for i, pair := range *f.pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, command.Usage("--env number %d (not shown, because it may be a secret): want NAME=VALUE", i+1)
		}
		env[name] = value
	}
	return env, nil
}

// migration is the result of extauthz-tools migrate ratelimit, as -o json prints it.
type migration struct {
	OK       bool              `json:"ok"` // the service starts
	Settings []migrate.Setting `json:"settings"`
	Problems rules.Problems    `json:"problems"`
	Changes  []migrate.Change  `json:"changes"`

	set    rules.Set
	strict bool
}

// migration checks rule files and settings.
func (p *program) migration(env map[string]string, paths []string) *migration {
	m := &migration{OK: true, Changes: []migrate.Change{}}
	variables, s := migrate.Settings(env)
	m.Settings = append([]migrate.Setting{}, variables...)
	set, problems := file.Check(paths, p.Stdin, service.RuleConfig(s))
	m.set, m.Problems = set, append(rules.Problems{}, problems...)
	m.strict = s.Limits.Compatibility == "strict"
	m.Changes = append(m.Changes, migrate.Ratelimit(m.set.Domains, migrate.RatelimitOptions{
		Strict:           m.strict,
		DefaultAlgorithm: s.Limits.DefaultAlgorithm, CalendarMonths: s.Limits.CalendarMonths,
		Set: func(variable string) bool { return env[variable] != "" },
	})...)
	m.OK = !m.Problems.HasErrors()
	for _, setting := range m.Settings {
		m.OK = m.OK && setting.Verdict != migrate.Refused
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
	if len(m.Problems) > 0 {
		fmt.Fprintln(stderr, m.Problems.Error())
	}
	if m.Problems.HasErrors() {
		fmt.Fprintln(stdout, "Rules: they have mistakes")
		return
	}
	if len(m.set.Domains) > 0 {
		fmt.Fprintf(stdout, "Rules: ok, %s. They stay as they are.\n\n", suggest.Counted(len(m.set.Domains), "domain"))
	}
	if len(m.Changes) > 0 {
		fmt.Fprintln(stdout, "What changes, by the rows of docs/reference/compatibility.md:")
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
