package main

import (
	"fmt"
	"io"

	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rulefile"
)

// check prints the mistakes of the rule files of a directory, as a server would find them: with the settings that give rules
// their meaning from the environment.
func check(args []string, stdout, stderr io.Writer) int {
	if len(args) != 1 {
		fmt.Fprint(stderr, "extauthz: check wants one directory, for example: extauthz check /srv/runtime_data/current/config\n")
		return exitNoStart
	}
	if args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(stdout, usage)
		return exitOK
	}
	if !exists(args[0]) {
		fmt.Fprintf(stderr, "extauthz: there is no directory %s\n", args[0])
		return exitNoStart
	}
	s, _, err := readSettings()
	if err != nil {
		fmt.Fprintf(stderr, "extauthz: the environment has mistakes:\n%s\n", err)
		return exitNoStart
	}
	rules, problems := rulefile.Load(args[0], s.ruleConfig())
	if len(problems) > 0 {
		fmt.Fprintln(stderr, problems.Error())
	}
	if problems.HasErrors() {
		return exitFailed
	}
	limits := 0
	for _, rule := range ratelimit.NewRules(rules.Domains, ratelimit.RulesOptions{}).All() {
		limits += len(rule.Limits)
	}
	fmt.Fprintf(stdout, "ok: %s, %s, generation %s\n", counted(len(rules.Domains), "domain"), counted(limits, "limit"), rules.Generation)
	return exitOK
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
