package deploy

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const anyRules = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n"

// TestDocumentation runs the examples of docs/kubernetes.md and the chart's README.md: helm commands with values, and a
// kustomization.
func TestDocumentation(t *testing.T) {
	text := string(read(t, path(t, "docs", "kubernetes.md")))
	given := operatorsObjects(t)
	dir := t.TempDir()
	values, rules := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "shop.yaml")
	write(t, values, []byte(block(t, text, "# values.yaml\n")))
	write(t, rules, []byte(anyRules))

	helmCommand := regexp.MustCompile(`(?m)^helm (?:install|upgrade --install) .*$`)
	commands := helmCommand.FindAllString(text+string(read(t, filepath.Join(chart(t), "README.md"))), -1)
	if len(commands) != 3 {
		t.Errorf("found the commands %q, want three", commands)
	}
	for _, command := range commands {
		// An upgrade needs a cluster. An installation makes the same objects.
		args := strings.Fields(strings.NewReplacer(
			"deploy/helm/extauthz", chart(t), "values.yaml", values, "=shop.yaml", "="+rules, `\\`, `\`, // as the shell reads it
			"upgrade --install", "install").Replace(command))
		printed, err := helm(t, append(args[1:], "--dry-run=client")...)
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		_, manifests, _ := strings.Cut(printed, "MANIFEST:\n")
		manifests, _, _ = strings.Cut(manifests, "NOTES:\n")
		if err := conforms(t, []byte(manifests)); err != nil {
			t.Errorf("%s: %v", command, err)
		}
		o := decode(t, []byte(manifests))
		o.fitTogether(t)
		o.run(t, given)
	}

	remote := regexp.MustCompile(
		`https://github.com/extauthz/extauthz//deploy/kustomize/(base|components)([^?\s]*)\?ref=\S*`)
	local := remote.ReplaceAllStringFunc(block(t, text, "# kustomization.yaml\n"), func(address string) string {
		part := remote.FindStringSubmatch(address)
		return strings.ToUpper(part[1]) + part[2]
	})
	root := overlay(t, local)
	write(t, filepath.Join(root, "rules", "shop.yaml"), []byte(anyRules))
	manifests, err := build(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := conforms(t, manifests); err != nil {
		t.Error(err)
	}
	o := decode(t, manifests)
	o.fitTogether(t)
	o.run(t, given)
}

// block returns the code block of a document with this first line.
func block(t *testing.T, text, begin string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "```yaml\n"+begin)
	code, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatalf("docs/kubernetes.md has no block that begins with %q", begin)
	}
	return code
}
