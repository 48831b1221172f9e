package rulefile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/authz"
)

// TestCheckEnvoy reads each case of testdata/envoy/*.txtar: NAME.yaml is a configuration of Envoy, NAME.want what is
// said about it. The comment of the archive ends with the rule file that it is compared with.
func TestCheckEnvoy(t *testing.T) {
	for _, path := range archives(t, "envoy") {
		_, rules, _ := strings.Cut(string(readArchive(t, path).Comment), "---\n")
		policies := policiesOf(t, rules)
		goldenCases(t, path, func(f File) string {
			managers, problems := CheckEnvoy(f, policies)
			if len(problems) > 0 {
				return problems.Error() + "\n"
			}
			return fmt.Sprintf("%d checked\n", managers)
		})
	}
}

// TestSamplesOfEnvoy compares the configurations that people copy with the policies they are for.
func TestSamplesOfEnvoy(t *testing.T) {
	for config, rules := range map[string]string{
		"envoy/envoy.yaml":                "internal/service/sample/sample.yaml",
		"envoy/sidecar.yaml":              "internal/service/sample/sample.yaml",
		"envoy/http-ext_authz.yaml":       "internal/service/sample/sample.yaml",
		"deploy/compose/envoy/envoy.yaml": "deploy/compose/rules/shop.yaml",
	} {
		file := File{Name: config, Content: []byte(testenv.RepoFile(t, config))}
		managers, problems := CheckEnvoy(file, policiesOf(t, testenv.RepoFile(t, rules)))
		if managers != 1 || len(problems) > 0 {
			t.Errorf("%s: got %d connection managers and these problems, want 1 and none:\n%v", config, managers, problems)
		}
	}
}

// TestMistakesInSamplesOfEnvoy changes one line of those configurations.
func TestMistakesInSamplesOfEnvoy(t *testing.T) {
	policies := policiesOf(t, testenv.RepoFile(t, "internal/service/sample/sample.yaml"))
	for _, c := range []struct{ config, before, after, want string }{
		{"envoy/http-ext_authz.yaml", "- { exact: x-auth-plan }", "- { exact: x-auth-plans }",
			"Envoy drops `x-auth-plan` from the answer"},
		{"envoy/http-ext_authz.yaml", "(owner|plan|", "(owner|", "Envoy does not remove `x-auth-plan` of clients"},
		{"envoy/envoy.yaml", "early_header_mutation_extensions:", "original_ip_detection_extensions:",
			"Envoy does not remove `x-auth-key-id`, `x-auth-method`, `x-auth-owner` and `x-auth-plan` of clients"},
		{"envoy/envoy.yaml", "{ name: x-device-id, present_match: true }", "{ name: x-auth-plan, present_match: true }",
			"Envoy chooses this route before ext_authz sets `x-auth-plan`"},
	} {
		text := testenv.RepoFile(t, c.config)
		if !strings.Contains(text, c.before) {
			t.Fatalf("%s has no %q", c.config, c.before)
		}
		changed := strings.Replace(text, c.before, c.after, 1)
		_, problems := CheckEnvoy(File{Name: c.config, Content: []byte(changed)}, policies)
		if len(problems) != 1 || !strings.Contains(problems[0].Message, c.want) {
			t.Errorf("%s with %q: got these problems, want one: %s\n%v", c.config, c.after, c.want, problems)
		}
	}
}

// TestEnvoyOnPage holds docs/ext_authz.md to what it shows of a mistake.
func TestEnvoyOnPage(t *testing.T) {
	text := strings.Replace(testenv.RepoFile(t, "envoy/http-ext_authz.yaml"), "- { exact: x-auth-plan }\n", "\n", 1)
	_, problems := CheckEnvoy(File{Name: "http-ext_authz.yaml", Content: []byte(text)},
		policiesOf(t, testenv.RepoFile(t, "internal/service/sample/sample.yaml")))
	if len(problems) != 1 || !strings.Contains(testenv.RepoFile(t, "docs/ext_authz.md"), problems[0].String()) {
		t.Errorf("got these problems, want one, and the page to show it:\n%v", problems)
	}
}

func policiesOf(t *testing.T, text string) map[string]*authz.Policy {
	t.Helper()
	rules, problems := Parse([]File{{Name: "rules.yaml", Content: []byte(text)}}, Config{})
	if problems.HasErrors() || len(rules.Policies) == 0 {
		t.Fatalf("no policies in\n%s\n%v", text, problems)
	}
	return rules.Policies
}
