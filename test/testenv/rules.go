package testenv

import (
	"os"
	"path/filepath"
	"testing"
)

// RulesRoot makes a RUNTIME_ROOT with one rule file, which limits rls.Example: the domain sample and the key api_key.
func RulesRoot(t testing.TB) string {
	t.Helper()
	return RulesRootWith(t, "domain: sample\n"+
		"descriptors: [{key: api_key, rate_limit: {unit: minute, requests_per_unit: 5}}]\n")
}

// RulesRootWith makes a RUNTIME_ROOT with one rule file of this text, config/rules.yaml.
func RulesRootWith(t testing.TB, text string) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}
