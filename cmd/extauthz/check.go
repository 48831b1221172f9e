package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/envoyconfig"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

func (p *program) check() *cobra.Command {
	c := &cobra.Command{
		Use:   "check PATH...",
		Short: "Find mistakes in rule files, and in configurations of Envoy that use them",
		Long: `extauthz check reports the mistakes in rule files that would stop extauthz serve at its start.
It uses the same environment variables as extauthz serve, such as DEFAULT_ALGORITHM.
It does not check API_KEY_SECRET, or where API keys are kept.
Each PATH is a directory, a file, or - for standard input. All paths are checked together, as one set of rules.
A running service takes rules without mistakes within two seconds. Exception: a file that was written in place, and of
which only the beginning is left, takes effect when it has been unchanged for 10 s.
The report goes to standard output. The exit code is 1 if there are mistakes, also in these variables.

With --envoy it also compares a configuration of Envoy with the rules. It reports:
  - domains and descriptors that match no rule, so that no limit applies.
  - costs (hits_addend) that Envoy ignores, and those that the rules charge for denied requests, too.
  - clusters of ext_authz and ratelimit that the file does not have.
  - ratelimit filters whose rate_limited_status is not the status of each limit.
  - identity headers, such as x-auth-owner, that Envoy does not remove from requests before it chooses a route.
  - identity headers that allowed_upstream_headers of an http_service does not list.
  - routes that Envoy chooses by an identity header before ext_authz has set it.`,
		Example: `  extauthz check /srv/runtime_data/current/config
  extauthz check --envoy envoy.yaml rules
  extauthz check --keys keys.jsonl rules
  extauthz check -o sarif rules/shop.yaml >shop.sarif
  extauthz check -o json - <shop.yaml`,
		Args: command.Wants(cobra.MinimumNArgs(1), "a directory, a file or -, for example: extauthz check rules"),
	}
	envoy := c.Flags().StringArray("envoy", nil, "also check this `FILE`: a bootstrap file of Envoy, or the output of "+
		"/config_dump\nof its admin interface; may be repeated")
	keys := c.Flags().String("keys", "", "also report the plans of the API keys in this `FILE` that no rule names")
	output := command.OutputFlag(c, "text", "json", "sarif")
	c.RunE = func(_ *cobra.Command, paths []string) error {
		if err := allExist(paths); err != nil {
			return err
		}
		s, err := p.readSettings()
		if err != nil {
			return err
		}
		p.warn(s)
		with := compared{status: s.Answers.Status, configurations: *envoy, keys: keysOf{file: *keys}}
		if *keys != "" {
			if with.keys.records, err = keyfile.Load(*keys); err != nil {
				return fmt.Errorf("--keys: %w", err)
			}
		}
		result := checkRules(paths, p.Stdin, service.RuleConfig(s), with)
		switch output.Word {
		case "json":
			err = command.PrintJSON(p.Stdout, result)
		case "sarif":
			err = command.PrintJSON(p.Stdout, sarifLog(result.Problems))
		default:
			result.print(p.Stdout, p.Stdout)
		}
		return errors.Join(err, command.Reported(result.OK))
	}
	return c
}

// allExist returns an error that names the paths without a file or directory, nil for none.
func allExist(paths []string) error {
	var missing []error
	for _, path := range paths {
		if _, err := os.Stat(path); path != strictyaml.Stdin && errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, fmt.Errorf("there is no file or directory %s", path))
		}
	}
	if missing != nil {
		return command.Usage("%w", errors.Join(missing...))
	}
	return nil
}

// checked is the result of extauthz check, as -o json prints it.
type checked struct {
	OK         bool                  `json:"ok"` // true also with warnings
	Domains    int                   `json:"domains"`
	Limits     int                   `json:"limits"`
	Generation string                `json:"generation"`
	Envoy      []checkedEnvoy        `json:"envoy,omitempty"`
	Problems   []command.ProblemJSON `json:"problems"`

	rules, plans rules.Problems // those of the rule files, and of the plans of API keys
}

// checkedEnvoy is the result for one configuration of Envoy.
type checkedEnvoy struct {
	File string `json:"file"`
	// Managers is the number of connection managers with an ext_authz or ratelimit filter.
	Managers int `json:"connection_managers"`

	problems rules.Problems
}

// compared is what rules without mistakes are compared with.
type compared struct {
	status         int // of denials by limits without their own (RESPONSE_STATUS)
	configurations []string
	keys           keysOf
}

// checkRules checks rule files. If they have no mistakes, it also checks what is compared with them.
func checkRules(paths []string, stdin io.Reader, cfg file.Config, with compared) *checked {
	set, problems := file.Check(paths, stdin, cfg)
	c := &checked{
		Domains: len(set.Domains), Generation: set.Generation,
		rules: problems, Problems: []command.ProblemJSON{},
	}
	limits := ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{Status: with.status})
	for _, rule := range limits.All() {
		c.Limits += len(rule.Limits)
	}
	if !problems.HasErrors() {
		for _, path := range with.configurations {
			e := checkedEnvoy{File: path}
			e.Managers, e.problems = envoyconfig.Load(path, envoyconfig.Rules{Policies: set.Policies, Limits: limits})
			c.Envoy = append(c.Envoy, e)
		}
		c.plans = with.keys.unnamedPlans(set)
	}
	problems = append(problems, c.plans...)
	for _, e := range c.Envoy {
		problems = append(problems, e.problems...)
	}
	c.OK = !problems.HasErrors()
	c.Problems = command.ProblemsOf(problems)
	return c
}

// print prints the result as text: mistakes to report, and lines that begin with ok to stdout.
func (c *checked) print(stdout, report io.Writer) {
	if len(c.rules) > 0 {
		fmt.Fprintln(report, c.rules.Error())
	}
	if c.rules.HasErrors() {
		return
	}
	fmt.Fprintf(stdout, "ok: %s, %s, generation %s\n", suggest.Counted(c.Domains, "domain"),
		suggest.Counted(c.Limits, "limit"), c.Generation)
	for _, e := range c.Envoy {
		if len(e.problems) > 0 {
			fmt.Fprintln(report, e.problems.Error())
			continue
		}
		fmt.Fprintf(stdout, "ok: %s, %s with ext_authz or ratelimit\n", e.File,
			suggest.Counted(e.Managers, "connection manager"))
	}
	if len(c.plans) > 0 {
		fmt.Fprintln(report, c.plans.Error())
	}
}
