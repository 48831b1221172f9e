package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/extauthz/extauthz/internal/command"
	"github.com/extauthz/extauthz/internal/doctor"
	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/internal/suggest"
	"github.com/extauthz/extauthz/pkg/authz/apikey"
	"github.com/extauthz/extauthz/pkg/authz/keyfile"
	"github.com/extauthz/extauthz/pkg/descriptors"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/rules/xds"
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

With --envoy it also compares a configuration of Envoy with the rules: domains and descriptors, costs, the order of
filters, timeouts, retries, clusters, status and identity headers. docs/reference/findings.md lists what it finds.
extauthz doctor adds what only a running Envoy knows.`,
		Example: `  extauthz check /srv/runtime_data/current/config
  extauthz check --envoy envoy.yaml rules
  extauthz check --envoy http://127.0.0.1:9901 rules
  extauthz check --keys keys.jsonl rules
  extauthz check --overlay overlay.yaml --rlconfig http://127.0.0.1:6070
  extauthz check -o sarif rules/shop.yaml >shop.sarif
  extauthz check -o json - <shop.yaml`,
	}
	overlay := c.Flags().String("overlay", "", "also check this `FILE`, an overlay of an xDS server; it needs no PATH")
	rlconfig := c.Flags().String("rlconfig", "", "compare the overlay with these rules: a `FILE` with the text of "+
		"/rlconfig,\nor the URL of the debug listener of a running service")
	envoy := c.Flags().StringArray("envoy", nil, "also check this `FILE`: a bootstrap file of Envoy, the output of "+
		"/config_dump of its\nadmin interface, or the URL of that interface; may be repeated")
	keys := c.Flags().String("keys", "", "also report the plans of the API keys in this `FILE` that no rule names")
	c.Args = func(c *cobra.Command, paths []string) error {
		switch {
		case *overlay != "" && len(paths) == 0:
			return nil
		case *overlay == "" && *rlconfig != "":
			return command.Usage("--rlconfig has the rules for an overlay: add --overlay FILE")
		}
		return command.Wants(cobra.MinimumNArgs(1), "a directory, a file or -, for example: extauthz check rules")(c, paths)
	}
	output := command.OutputFlag(c, "text", "json", "sarif")
	c.RunE = p.withSettings(func(ctx context.Context, s *settings.Settings, paths []string) error {
		err := exist(paths)
		if err != nil {
			return err
		}
		if len(paths) == 0 && (*keys != "" || len(*envoy) > 0) {
			return command.Usage("--envoy and --keys need rules: add a directory or a file")
		}
		p.warn(s)
		var records []apikey.Record
		if *keys != "" {
			if records, err = keyfile.Load(*keys); err != nil {
				return fmt.Errorf("--keys: %w", err)
			}
		}
		result := &checked{OK: true, Problems: strictyaml.Problems{}}
		if len(paths) > 0 {
			result = checkRules(paths, p.Stdin, service.RuleConfig(s), s.Answers.Status)
		}
		if *overlay != "" {
			report, err := checkOverlay(ctx, *overlay, *rlconfig, s)
			if err != nil {
				return err
			}
			result.report(report)
		}
		if len(paths) > 0 && !result.rules.HasErrors() {
			result.plans = result.unnamedPlans(*keys, records)
			result.add(result.plans)
			for _, from := range *envoy {
				result.report(&doctor.Load(ctx, from, result.against(s)).Report)
			}
		}
		return errors.Join(p.printChecked(result, output), command.Reported(result.OK))
	})
	return c
}

// checkOverlay checks an overlay, together with the rules that rlconfig has, the path of a file or a URL, "" for none.
func checkOverlay(ctx context.Context, overlay, rlconfig string, s *settings.Settings) (r *doctor.Report, err error) {
	var dump []byte
	switch {
	case rlconfig == "":
	case doctor.IsURL(rlconfig):
		address := strings.TrimSuffix(strings.TrimSuffix(rlconfig, "/"), "/rlconfig") + "/rlconfig"
		dump, err = doctor.Get(ctx, address, debugPatience, maxDebugAnswer)
	default:
		dump, err = os.ReadFile(rlconfig)
	}
	if err != nil {
		return nil, fmt.Errorf("--rlconfig: %w", err)
	}
	cfg := service.RuleConfig(s)
	compared, problems := xds.CheckOverlay(overlay, dump, &xds.Config{RequireEnd: cfg.RequireEnd, Check: cfg.CheckOptions})
	r = &doctor.Report{At: overlay, Findings: problems}
	switch {
	case problems.HasErrors():
	case dump == nil:
		r.Facts = []string{"not compared with rules"}
	default:
		r.Facts = []string{"compared with " + suggest.Counted(compared, "rule") + " of its domains"}
	}
	return r, nil
}

// exist returns an error of usage unless all paths exist.
func exist(paths []string) error {
	var missing []error
	for _, path := range paths {
		if _, err := os.Stat(path); path != strictyaml.Stdin && errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, fmt.Errorf("there is no file or directory %s", path))
		}
	}
	if len(missing) > 0 {
		return command.Usage("%w", errors.Join(missing...))
	}
	return nil
}

func (p *program) printChecked(result *checked, output *command.Format) error {
	switch output.Word {
	case "json":
		return command.PrintJSON(p.Stdout, result)
	case "sarif":
		return command.PrintJSON(p.Stdout, sarifLog(result.Problems))
	}
	result.print(p.Stdout, p.Stdout)
	return nil
}

// checked is the result of extauthz check, as -o json prints it.
type checked struct {
	OK         bool                `json:"ok"` // true also with warnings
	Domains    int                 `json:"domains"`
	Limits     int                 `json:"limits"`
	Generation string              `json:"generation"`
	Reports    []*doctor.Report    `json:"reports,omitempty"` // of Envoy and Redis
	Problems   strictyaml.Problems `json:"problems"`

	rules, plans rules.Problems // those of the rule files, and of the plans of API keys
	set          rules.Set
	limits       *ratelimit.Rules
}

// checkRules checks rule files. status is that of denials by limits without their own (RESPONSE_STATUS).
func checkRules(paths []string, stdin io.Reader, cfg file.Config, status int) *checked {
	set, problems := file.Check(paths, stdin, cfg)
	c := &checked{
		OK: true, Domains: len(set.Domains), Generation: set.Generation, set: set, rules: problems,
		Problems: strictyaml.Problems{},
	}
	c.limits = ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{Status: status, Networks: set.Networks})
	for _, rule := range c.limits.All() {
		c.Limits += len(rule.Limits)
	}
	c.add(problems)
	return c
}

func (c *checked) add(problems rules.Problems) {
	c.OK = c.OK && !problems.HasErrors()
	c.Problems = append(c.Problems, problems...)
}

// against returns what a configuration of Envoy is compared with: the rules, unless they have mistakes, and settings.
func (c *checked) against(s *settings.Settings) doctor.Rules {
	r := doctor.Rules{HTTPTimeout: s.Authorization.HTTPTimeout}
	if s.UsesRedis() && !s.Strict() {
		r.RedisWait = cmp.Or(s.Redis.Main.Timeout, time.Millisecond) // more than nothing
	}
	if !c.rules.HasErrors() {
		r.Policies, r.Limits = c.set.Policies, c.limits
	}
	return r
}

func (c *checked) report(r *doctor.Report) {
	c.Reports = append(c.Reports, r)
	c.add(r.Findings)
}

// print prints the result as text: mistakes to report, and lines that begin with ok to stdout.
func (c *checked) print(stdout, report io.Writer) {
	mistakes := func(problems rules.Problems) {
		if len(problems) > 0 {
			fmt.Fprintln(report, problems.Error())
		}
	}
	mistakes(c.rules)
	if !c.rules.HasErrors() && c.Generation != "" {
		fmt.Fprintf(stdout, "ok: %s, %s, generation %s\n", suggest.Counted(c.Domains, "domain"),
			suggest.Counted(c.Limits, "limit"), c.Generation)
	}
	for _, r := range c.Reports {
		mistakes(r.Findings)
		for _, fact := range r.Facts {
			fmt.Fprintf(stdout, "ok: %s, %s\n", r.At, fact)
		}
	}
	mistakes(c.plans)
}

// unnamedPlans warns of plans of the API keys in a file that are no value of a rule. Such a value can come from a
// policy, or from the header with the plan. Rules without values for plans limit all plans alike and are no mistake.
func (c *checked) unnamedPlans(file string, keys []apikey.Record) (problems rules.Problems) {
	plans := map[string]int{} // to the number of keys
	for _, r := range keys {
		if state := r.State(time.Now()); r.Plan != "" && state != "disabled" && state != "expired" {
			plans[r.Plan]++
		}
	}
	ofPlans := entriesOfPlans(c.set)
	var values []string
	anyPlan, named := false, false
	for _, rule := range c.limits.All() {
		for _, n := range rule.Path() {
			ofPlan := slices.Contains(ofPlans, n.Key)
			anyPlan, named = anyPlan || ofPlan && n.Value == "", named || ofPlan && n.Value != ""
			if n.Value != "" && !slices.Contains(values, n.Value) {
				values = append(values, n.Value)
			}
		}
	}
	if anyPlan && !named {
		return nil
	}
	for _, plan := range slices.Sorted(maps.Keys(plans)) {
		if slices.ContainsFunc(values, func(v string) bool { return descriptors.Match(v, plan) }) {
			continue
		}
		hint := cmp.Or(suggest.DidYouMean(plan, values), "add a descriptor with this `value`, or correct the plan")
		problems = append(problems, strictyaml.Problem{File: file, Warning: true, Hints: []string{hint},
			Message: "no rule names the plan " + suggest.Quoted(plan) + " of " + suggest.Counted(plans[plan], "key")})
	}
	return problems
}

// entriesOfPlans returns the keys of the entries that policies make of plans.
func entriesOfPlans(set rules.Set) (keys []string) {
	for _, policy := range set.Policies {
		for _, limit := range policy.Limits {
			for _, action := range limit.Actions {
				if c := action.Credential; c != nil && c.Field.String() == "plan" {
					key := "plan"
					if c.Key != nil {
						key = *c.Key
					}
					keys = append(keys, key)
				}
			}
		}
	}
	return keys
}
