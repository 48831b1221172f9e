package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/command"
)

// explained runs extauthz explain, and returns what it prints and the exit code.
func explained(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, err strings.Builder
	p := &program{command.Program{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &err}}
	code = p.run(append([]string{"explain"}, args...))
	return out.String(), err.String(), code
}

func TestExplain(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "shop.yaml")
	if err := os.WriteFile(rules, []byte(`domain: shop
descriptors:
  - key: tenant
    rate_limit: {name: per-tenant, unit: minute, requests_per_unit: 2}
  - {key: free, rate_limit: {unlimited: true}}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	captured := `{"domain": "shop", "descriptors": [{"entries": [{"key": "tenant", "value": "a"}], "hitsAddend": 3}]}`
	for _, c := range []struct {
		name, stdin string
		args        []string
		code        int
		wants       []string
	}{
		{name: "a rule matches", args: []string{rules, "--domain", "shop", "--descriptor", "tenant=a"}, wants: []string{
			"matched    `tenant` (" + rules + ":3)", "0 of 2 used (sliding_window_log, 60 s), costs 1: fits, charges 1",
			"=> allowed (nothing was charged)", `ratelimit: "per-tenant";r=1;t=60`,
		}},
		{name: "no rule matches", args: []string{rules, "--domain", "shop", "--descriptor", "tenat=a"}, wants: []string{
			"no limit   no rule for `tenat`; did you mean `tenant`?", "=> allowed",
		}},
		{name: "an unknown domain", args: []string{rules, "--domain", "shpo", "--descriptor", "tenant=a"}, wants: []string{
			"no rules for the domain `shpo`; did you mean `shop`?",
		}},
		{name: "an unlimited rule", args: []string{rules, "--domain", "shop", "--descriptor", "free=a"}, wants: []string{
			"no limit   the rule free is unlimited",
		}},
		{name: "a captured request", args: []string{rules, "--request", "-"}, stdin: captured, wants: []string{
			"costs 3: never fits, charges 3", "=> refused, over_limit (nothing was charged)",
		}},
		{name: "no policy", args: []string{rules}, wants: []string{"=> refused, no_policy, status 403"}},
		{name: "a check without attributes", args: []string{rules, "--request", "-"}, stdin: `{"attributes": {}}`,
			wants: []string{"ext_authz", "=> refused"}},
		{name: "no request", args: []string{rules, "--request", "-"}, stdin: `{"a": 1}`, code: 1, wants: []string{
			"want a CheckRequest", "or a RateLimitRequest",
		}},
		{name: "no JSON", args: []string{rules, "--request", "-"}, stdin: `domain: shop`, code: 1,
			wants: []string{"no JSON"}},
		{name: "no such field", args: []string{rules, "--request", "-"}, stdin: `{"attributes": {"requset": {}}}`, code: 1,
			wants: []string{"requset"}},
		{name: "rules and a service", args: []string{rules, "--debug", "localhost:1"}, code: 2, wants: []string{"leave out"}},
		{name: "no service", args: []string{"--debug", "localhost:1"}, code: 1, wants: []string{
			"want the debug port of a running extauthz (DEBUG_PORT, 6070 by default)",
		}},
		{name: "no rules", args: []string{rules + "none", "--domain", "shop", "--descriptor", "a=b"}, code: 1,
			wants: []string{"no such file"}},
		{name: "no domain", args: []string{rules, "--descriptor", "a=b"}, code: 2, wants: []string{"missing --domain"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			stdout, stderr, code := explained(t, c.stdin, c.args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			for _, want := range c.wants {
				if !strings.Contains(stdout+stderr, want) {
					t.Errorf("the output lacks %q:\n%s%s", want, stdout, stderr)
				}
			}
		})
	}
}
