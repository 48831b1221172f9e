// Package envoy tests the sample configurations of Envoy in this directory, each of which is complete.
package envoy

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// TestSamplesAreValid lets Envoy validate each sample. test/e2e tests what the samples do, with the service behind
// them.
func TestSamplesAreValid(t *testing.T) {
	samples, err := filepath.Glob("*.yaml")
	if err != nil || len(samples) == 0 {
		t.Fatalf("there are no samples: %v", err)
	}
	for _, sample := range samples {
		t.Run(sample, func(t *testing.T) {
			config, err := os.ReadFile(sample)
			if err != nil {
				t.Fatal(err)
			}
			if err := testenv.ValidateEnvoy(t, string(config)); err != nil {
				t.Error(err)
			}
		})
	}
}

// retry matches the keys that configure retries, of Envoy and of Envoy Gateway.
var retry = regexp.MustCompile(`\b(retry_policy|retryPolicy|retry_on|retryOn|num_retries|numRetries)\b["']?\s*:`)

// TestNoRetries checks that no YAML file of the repository configures a retry. A failed call may have been charged,
// and a retry would be charged again.
func TestNoRetries(t *testing.T) {
	const repeats = "grpc_service: { envoy_grpc: { cluster_name: extauthz }, retry_policy: { num_retries: 1 } }"
	if !retry.MatchString(repeats) {
		t.Fatalf("%s does not match %s", retry, repeats)
	}
	root := testenv.RepoRoot(t)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") { // tools and the like
			return fs.SkipDir
		}
		if !slices.Contains([]string{".yaml", ".yml", ".tpl"}, filepath.Ext(path)) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		number := 0
		for line := range strings.Lines(string(content)) {
			number++
			setting, _, _ := strings.Cut(line, "#")
			if retry.MatchString(setting) {
				t.Errorf("%s:%d: %s: a retried call to extauthz may be charged twice", path, number, strings.TrimSpace(setting))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
