package observability

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v4"

	"github.com/extauthz/extauthz/test/testenv"
)

const (
	rulesPattern = "deploy/observability/prometheus/rules/*.yaml"
	testsPattern = "deploy/observability/prometheus/tests/*.yaml"
)

// alert is an alert of the rule files.
type alert struct {
	Alert       string            `yaml:"alert"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// alerts returns all alerts of the rule files.
func alerts(t *testing.T) (all []alert) {
	t.Helper()
	for _, name := range glob(t, rulesPattern) {
		var file struct {
			Groups []struct {
				Rules []alert `yaml:"rules"`
			} `yaml:"groups"`
		}
		readYAML(t, name, &file)
		for _, group := range file.Groups {
			all = append(all, group.Rules...)
		}
	}
	return all
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(content, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// TestPromtool lets promtool check the configuration and the rules, and run the tests of the rules.
func TestPromtool(t *testing.T) {
	for _, args := range [][]string{
		{"check", "config", path(t, "deploy/observability/prometheus/prometheus.yml")},
		append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, glob(t, rulesPattern)...),
		append([]string{"test", "rules"}, glob(t, testsPattern)...),
	} {
		if err := promtool(t, "", args...); err != nil {
			t.Error(err)
		}
	}
}

// TestAlerts checks that each alert has a severity, texts and a section in the runbook, and that it works in every
// installation. The runbook lists the critical ones.
func TestAlerts(t *testing.T) {
	page := testenv.RepoFile(t, "docs/runbook.md")
	runbook := headings(page)
	_, critical, _ := strings.Cut(page, "alerts are `critical` and page: ")
	critical, _, _ = strings.Cut(critical, ".")
	pages := strings.FieldsFunc(critical, func(r rune) bool { return !unicode.IsLetter(r) })
	names := map[string]bool{}
	for _, a := range alerts(t) {
		t.Run(a.Alert, func(t *testing.T) {
			if names[a.Alert] {
				t.Error("two alerts have this name")
			}
			names[a.Alert] = true
			if s := a.Labels["severity"]; s != "critical" && s != "warning" {
				t.Errorf("severity %q, want critical or warning", s)
			} else if listed := slices.Contains(pages, a.Alert); listed != (s == "critical") {
				t.Errorf("severity %s, but docs/runbook.md lists it as critical: %t", s, listed)
			}
			if a.For == "" {
				t.Error("no `for`: the alert fires after a single evaluation")
			}
			for _, name := range []string{"summary", "description"} {
				if a.Annotations[name] == "" {
					t.Errorf("no %s", name)
				}
			}
			const base = "https://github.com/extauthz/extauthz/blob/main/docs/runbook.md#"
			anchor, ok := strings.CutPrefix(a.Annotations["runbook_url"], base)
			if !ok || anchor != strings.ToLower(a.Alert) {
				t.Errorf("runbook_url %q, want %s%s", a.Annotations["runbook_url"], base, strings.ToLower(a.Alert))
			}
			if !slices.Contains(runbook, a.Alert) {
				t.Errorf("docs/runbook.md has no section %s", a.Alert)
			}
			for _, s := range selectors(t, a.Expr) {
				for _, m := range s.LabelMatchers {
					if slices.Contains([]string{"job", "instance", "namespace", "domain", "rule"}, m.Name) {
						t.Errorf("%s: the label %s has other values in other installations", s, m.Name)
					}
				}
			}
		})
	}
	for _, section := range runbook {
		if strings.HasPrefix(section, "Extauthz") && !names[section] {
			t.Errorf("docs/runbook.md has a section %s, but there is no such alert", section)
		}
	}
}

// TestAlertsAreTested checks that promtool's tests have a case in which an alert fires, and one in which it does not.
func TestAlertsAreTested(t *testing.T) {
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, name := range glob(t, testsPattern) {
		var file struct {
			Tests []struct {
				Cases []struct {
					Alert  string `yaml:"alertname"`
					Firing []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		readYAML(t, name, &file)
		for _, test := range file.Tests {
			for _, c := range test.Cases {
				fires[c.Alert] = fires[c.Alert] || len(c.Firing) > 0
				silent[c.Alert] = silent[c.Alert] || len(c.Firing) == 0
			}
		}
	}
	for _, a := range alerts(t) {
		if !fires[a.Alert] || !silent[a.Alert] {
			t.Errorf("%s: a case in which it fires: %t, one in which it does not: %t; want both",
				a.Alert, fires[a.Alert], silent[a.Alert])
		}
	}
}

// headings returns the second-level headings of a Markdown text.
func headings(text string) (names []string) {
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// parse parses an expression. The test fails if the expression is invalid.
func parse(t *testing.T, expr string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Fatalf("%s\n%v", expr, err)
	}
	return e
}

// selectors returns the selectors of an expression, as instant vectors.
func selectors(t *testing.T, expr string) (all []*parser.VectorSelector) {
	t.Helper()
	parser.Inspect(parse(t, expr), func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			all = append(all, s)
		}
		return nil
	})
	return all
}
