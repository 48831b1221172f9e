// Package envoy holds sample configurations of Envoy, each complete.
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

// What the samples do is tested in test/e2e, with the service behind them.
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

// retry is what tells an Envoy to make a call again: its own keys, and those of Envoy Gateway.
var retry = regexp.MustCompile(`\b(retry_policy|retryPolicy|retry_on|retryOn|num_retries|numRetries)\b["']?\s*:`)

// A call that failed may have been charged, and would be charged again. So no YAML here tells an Envoy to repeat one.
func TestNothingIsAskedTwice(t *testing.T) {
	if repeats := "grpc_service: { envoy_grpc: { cluster_name: extauthz }, retry_policy: { num_retries: 1 } }"; !retry.MatchString(repeats) {
		t.Fatalf("%s is not found in %s", retry, repeats)
	}
	root := testenv.RepoRoot(t)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") { // tools, and what is not of this project
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
				t.Errorf("%s:%d: %s: what is asked of extauthz again may be charged again", path, number, strings.TrimSpace(setting))
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
