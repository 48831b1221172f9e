package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/extauthz/extauthz/internal/service"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rulefile"
)

const checkUsage = `extauthz check finds the mistakes of the rule files of a directory, as a server would at its start.

Usage:
  extauthz check DIR                 exit 1 when there are mistakes
  --envoy FILE                       also compare a configuration of Envoy with the policies of the rules: a bootstrap
                                     file, or what its admin interface returns for /config_dump; may be repeated

With --envoy it reports each identity header, such as x-auth-owner,
  - that Envoy does not remove from requests of clients before it chooses a route,
  - that allowed_upstream_headers of an http_service does not list,
  - by which a route is chosen before ext_authz has set it.

Example:
  extauthz check --envoy envoy.yaml /srv/runtime_data/current/config
`

// check prints the mistakes of the rule files of a directory, as a server would find them: with the settings that give
// rules their meaning from the environment. It compares configurations of Envoy with them.
func check(args []string, env service.Environment, stdout, stderr io.Writer) int {
	dir, configurations, err := parseCheck(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, checkUsage)
		return exitOK
	}
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: check: %v\n(extauthz check --help lists all flags)\n", err)
		return exitNoStart
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintf(stderr, "extauthz: there is no directory %s\n", dir)
		return exitNoStart
	}
	s, err := service.ReadSettings(env)
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n", err)
		return exitNoStart
	}
	rules, problems := rulefile.Load(dir, s.RuleConfig())
	if len(problems) > 0 {
		fmt.Fprintln(stderr, problems.Error())
	}
	if problems.HasErrors() {
		return exitFailed
	}
	if len(configurations) > 0 && len(rules.Policies) == 0 {
		fmt.Fprintf(stderr, "extauthz: check --envoy: no rule file in %s has an `authz:` section to compare with\n", dir)
		return exitFailed
	}
	limits := 0
	for _, rule := range ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}).All() {
		limits += len(rule.Limits)
	}
	domains := counted(len(rules.Domains), "domain")
	fmt.Fprintf(stdout, "ok: %s, %s, generation %s\n", domains, counted(limits, "limit"), rules.Generation)
	code := exitOK
	for _, path := range configurations {
		managers, problems := rulefile.LoadEnvoy(path, rules.Policies)
		if problems.HasErrors() {
			fmt.Fprintln(stderr, problems.Error())
			code = exitFailed
			continue
		}
		fmt.Fprintf(stdout, "ok: %s, %s with ext_authz\n", path, counted(managers, "connection manager"))
	}
	return code
}

// parseCheck reads the arguments of check: the directory of the rules and the configurations of Envoy.
func parseCheck(args []string) (dir string, configurations []string, err error) {
	f := flag.NewFlagSet("check", flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error is enough
	f.Func("envoy", "", func(path string) error {
		configurations = append(configurations, path)
		return nil
	})
	if err := f.Parse(args); err != nil {
		return "", nil, err
	}
	if f.NArg() != 1 {
		return "", nil, errors.New("want one directory, for example: extauthz check /srv/runtime_data/current/config")
	}
	return f.Arg(0), configurations, nil
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
