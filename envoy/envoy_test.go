// Package envoy tests the sample configurations of Envoy in this directory, each of which is complete.
package envoy

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
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

// retryKeys match the keys that configure retries, of Envoy, Istio and Envoy Gateway, and their values.
var retryKeys = regexp.MustCompile(`(?i)\b(retry_?policy|retry_?on|num_?retries|max_?interval|retriable\w*|` +
	`http_?status_?codes|hedge_?policy|x-envoy-(?:retry|max-retries|hedge)[\w-]*)["']?\s*:\s*(.*?)\s*$`)

// mistakes returns what is wrong with the retries that a file configures. Only a call that was not sent may be
// retried. Any other may have been charged, and a retry would be charged again.
func mistakes(content string) (found []string) {
	keys := map[string]int{}
	number := 0
	for line := range strings.Lines(content) {
		number++
		setting, _, _ := strings.Cut(line, " #")
		if strings.HasPrefix(strings.TrimSpace(setting), "#") {
			continue
		}
		match := retryKeys.FindStringSubmatch(strings.TrimRight(setting, "\n"))
		if match == nil {
			continue
		}
		key, value := strings.ToLower(strings.ReplaceAll(match[1], "_", "")), match[2]
		keys[key]++
		allowed := map[string]string{
			"retrypolicy": "^$", "numretries": `^\d$`,
			"retryon": `^(connect-failure,refused-stream|\{ triggers: \[connect-failure, refused-stream\] \})$`,
			// Envoy also ends each try after this time. No timeout of a call is longer.
			"maxinterval": `^10s[ }]*$`,
		}[key]
		if allowed == "" || !regexp.MustCompile(allowed).MatchString(value) {
			found = append(found, fmt.Sprintf("line %d: %s", number, strings.TrimSpace(setting)))
		}
	}
	if n := keys["retryon"]; keys["retrypolicy"] > n || keys["numretries"] != n || keys["maxinterval"] != n {
		found = append(found, fmt.Sprintf("a retry without retry_on, num_retries or max_interval: %v", keys))
	}
	return found
}

// TestRetries checks all YAML files of the repository, and the notes of the chart.
func TestRetries(t *testing.T) {
	const ours = "retry_policy:\n  retry_on: connect-failure,refused-stream\n  num_retries: 3\n" +
		"  retry_back_off: { base_interval: 0.001s, max_interval: 10s }\n"
	if found := mistakes(ours); found != nil {
		t.Errorf("mistakes in what the samples have: %v", found)
	}
	for before, after := range map[string]string{
		"refused-stream":            "refused-stream,reset",
		"connect-failure,":          "5xx,",
		"  retry_on":                "  # retry_on",
		", max_interval: 10s":       "",
		"10s":                       "10ms",
		"retry_policy:\n":           "retry_policy: { num_retries: 1 }\n",
		"  num_retries: 3\n":        "  num_retries: 3\n  retriable_status_codes: [503]\n",
		"retry_policy:\n  retry_on": "initial_metadata: [{ key: a, value: b }]\nx-envoy-retry-on",
	} {
		if found := mistakes(strings.Replace(ours, before, after, 1)); found == nil {
			t.Errorf("no mistake with %q in place of %q", after, before)
		}
	}
	root, retries := testenv.RepoRoot(t), 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") { // tools and the like
			return fs.SkipDir
		}
		if !slices.Contains([]string{".yaml", ".yml", ".tpl", ".txt"}, filepath.Ext(path)) {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		retries += strings.Count(string(content), "num_retries:")
		for _, mistake := range mistakes(string(content)) {
			t.Errorf("%s: %s: a retried call to extauthz may be charged twice", path, mistake)
		}
		return nil
	})
	if err != nil || retries == 0 {
		t.Errorf("%d retries found, %v", retries, err)
	}
}
