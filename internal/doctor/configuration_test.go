package doctor

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/extauthz/extauthz/internal/strictyaml"
	"github.com/extauthz/extauthz/pkg/ratelimit"
	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/cases"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata with the current results")

// TestCheck reads each case of testdata: NAME.yaml is a configuration of Envoy, NAME.want its problems. The comment of
// the archive ends with the rule file to compare with.
func TestCheck(t *testing.T) {
	cases.Run(t, "testdata/*.txtar", *update, func(t *testing.T, comment string, f txtar.File) string {
		_, text, _ := strings.Cut(comment, "---\n")
		checked := Check(strictyaml.File{Name: f.Name, Content: f.Data}, rulesOf(t, text))
		if len(checked.Findings) > 0 {
			return checked.Findings.Error() + "\n"
		}
		return fmt.Sprintf("%d checked\n", checked.Managers)
	})
}

// TestSamples compares the sample configurations with their policies.
func TestSamples(t *testing.T) {
	for config, rules := range map[string]string{
		"envoy/envoy.yaml":                "internal/service/sample/sample.yaml",
		"envoy/sidecar.yaml":              "internal/service/sample/sample.yaml",
		"envoy/http-ext_authz.yaml":       "internal/service/sample/sample.yaml",
		"deploy/compose/envoy/envoy.yaml": "deploy/compose/rules/shop.yaml",
	} {
		envoy := strictyaml.File{Name: config, Content: []byte(testenv.RepoFile(t, config))}
		checked := Check(envoy, rulesOf(t, testenv.RepoFile(t, rules)))
		if checked.Managers != 1 || len(checked.Findings) > 0 {
			t.Errorf("%s: got %d connection managers and these problems, want 1 and none:\n%v", config, checked.Managers,
				checked.Findings)
		}
	}
}

// TestMistakesInSamples changes one line of a sample configuration.
func TestMistakesInSamples(t *testing.T) {
	policies := rulesOf(t, testenv.RepoFile(t, "internal/service/sample/sample.yaml"))
	for _, c := range []struct{ config, before, after, want string }{
		{"envoy/http-ext_authz.yaml", "- { exact: x-auth-plan }", "- { exact: x-auth-plans }",
			"Envoy drops `x-auth-plan` from the response"},
		{"envoy/http-ext_authz.yaml", "(owner|plan|", "(owner|", "Envoy does not remove the client's `x-auth-plan`"},
		{"envoy/envoy.yaml", "early_header_mutation_extensions:", "original_ip_detection_extensions:",
			"Envoy does not remove the client's `x-auth-key-id`, `x-auth-method`, `x-auth-owner` and `x-auth-plan`"},
		{"envoy/envoy.yaml", "{ domain: sample }", "{ domain: sampel }", "no policy has the domain `sampel`"},
		{"envoy/sidecar.yaml", "domain: sample", "domain: sampel",
			"no rules for the domain `sampel`; did you mean `sample`?"},
		{"envoy/envoy.yaml", "{ descriptor_key: action, descriptor_value: create_account }",
			"{ descriptor_key: actoin, descriptor_value: create_account }",
			"no limit applies to the descriptor of these actions: no rule for `actoin`; did you mean `action`?"},
		{"envoy/envoy.yaml", "envoy_grpc: { cluster_name: extauthz }", "envoy_grpc: { cluster_name: extauht }",
			"this file has no cluster `extauht`"},
		{"envoy/envoy.yaml", "{ name: x-device-id, present_match: true }", "{ name: x-auth-plan, present_match: true }",
			"Envoy chooses this route before ext_authz sets `x-auth-plan`"},
	} {
		text := testenv.RepoFile(t, c.config)
		if !strings.Contains(text, c.before) {
			t.Fatalf("%s has no %q", c.config, c.before)
		}
		changed := strings.Replace(text, c.before, c.after, 1)
		problems := Check(strictyaml.File{Name: c.config, Content: []byte(changed)}, policies).Findings
		if len(problems) != 1 || !strings.Contains(problems[0].Message, c.want) {
			t.Errorf("%s with %q: got these problems, want one: %s\n%v", c.config, c.after, c.want, problems)
		}
	}
}

// TestPage checks the message that docs/ext_authz.md quotes.
func TestPage(t *testing.T) {
	text := strings.Replace(testenv.RepoFile(t, "envoy/http-ext_authz.yaml"), "- { exact: x-auth-plan }\n", "\n", 1)
	problems := Check(strictyaml.File{Name: "http-ext_authz.yaml", Content: []byte(text)},
		rulesOf(t, testenv.RepoFile(t, "internal/service/sample/sample.yaml"))).Findings
	if len(problems) != 1 || !strings.Contains(testenv.RepoFile(t, "docs/ext_authz.md"), problems[0].String()) {
		t.Errorf("got these problems, want one, and the page to show it:\n%v", problems)
	}
}

func rulesOf(t *testing.T, text string) Rules {
	t.Helper()
	set, problems := file.Parse([]file.File{{Name: "rules.yaml", Content: []byte(text)}}, file.Config{})
	if problems.HasErrors() || len(set.Domains)+len(set.Policies) == 0 {
		t.Fatalf("no rules in\n%s\n%v", text, problems)
	}
	return Rules{
		Policies: set.Policies, Limits: ratelimit.NewRules(set.Domains, ratelimit.RulesOptions{}),
		RedisWait: 10 * time.Millisecond, HTTPTimeout: 200 * time.Millisecond,
	}
}
