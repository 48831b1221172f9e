package deploy

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const anyRules = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 1}}]\n"

// TestDocumentation runs the examples of docs/kubernetes.md, docs/istio.md and the chart's README.md: helm commands
// with values, and a kustomization.
func TestDocumentation(t *testing.T) {
	text := string(read(t, path(t, "docs", "kubernetes.md")))
	others := string(read(t, path(t, "docs", "istio.md"))) + string(read(t, filepath.Join(chart(t), "README.md")))
	given := operatorsObjects(t)
	dir := t.TempDir()
	values, rules := filepath.Join(dir, "values.yaml"), filepath.Join(dir, "shop.yaml")
	write(t, values, []byte(block(t, text, "# values.yaml\n")))
	write(t, rules, []byte(anyRules))

	helmCommand := regexp.MustCompile(`(?m)^helm (?:install|upgrade --install) .*$`)
	commands := helmCommand.FindAllString(text+others, -1)
	if len(commands) != 4 {
		t.Errorf("found the commands %q, want four", commands)
	}
	for _, command := range commands {
		// An upgrade needs a cluster. An installation makes the same objects.
		args := strings.Fields(strings.NewReplacer(
			"deploy/helm/extauthz", chart(t), "values.yaml", values, "=shop.yaml", "="+rules,
			"=istio/", "="+path(t, "istio")+"/", "$REPOSITORY", "registry.example.com/extauthz",
			`\\`, `\`, // as the shell reads it
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

// TestNarrowedPolicies narrows the network policy to one gateway as docs/kubernetes.md shows it, in the chart and with
// kustomize.
func TestNarrowedPolicies(t *testing.T) {
	text := string(read(t, path(t, "docs", "kubernetes.md")))
	values := filepath.Join(t.TempDir(), "values.yaml")
	write(t, values, []byte(block(t, text, "# values of Envoys\n")))
	manifests, err := render(t, "--values", values)
	if err != nil {
		t.Fatal(err)
	}
	onlyOneGateway(t, manifests, "grpc", "http")

	manifests, err = build(overlay(t, "resources: [BASE]\npatches:\n"+block(t, text, "patches:\n")))
	if err != nil {
		t.Fatal(err)
	}
	onlyOneGateway(t, manifests, "grpc")

	manifests, err = render(t, "--set-json", "networkPolicy.clients=[]")
	if err != nil {
		t.Fatal(err)
	}
	if from := decode(t, manifests).policies[0].Spec.Ingress[0].From; len(from) != 1 || from[0].NamespaceSelector != nil {
		t.Errorf("without clients, the policy of the chart admits %v, want only the pod of `helm test`", from)
	}
}

// onlyOneGateway checks that a network policy opens these ports to the pods of one gateway, and no other namespace.
func onlyOneGateway(t *testing.T, manifests []byte, ports ...string) {
	t.Helper()
	if err := conforms(t, manifests); err != nil {
		t.Error(err)
	}
	rule := decode(t, manifests).policies[0].Spec.Ingress[0]
	var open []string
	for _, p := range rule.Ports {
		open = append(open, p.Port.String())
	}
	if !slices.Equal(open, ports) {
		t.Errorf("the policy opens %q, want %q", open, ports)
	}
	for _, from := range rule.From {
		if from.NamespaceSelector != nil && (from.PodSelector == nil || len(from.PodSelector.MatchLabels) == 0) {
			t.Errorf("the policy admits every pod of %v", from.NamespaceSelector)
		}
	}
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
