// Package observability tests the alerts, the dashboards, the configuration of Prometheus and the documentation of
// metrics. A real Prometheus scrapes the real service and a real Envoy, and evaluates the expressions. A test fails
// if an expression uses a metric, a label or a value that does not exist.
package observability

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// binary is the path of the service, which TestMain builds once for all tests.
var binary string

func TestMain(m *testing.M) {
	os.Exit(testenv.WithService(func(path string) int {
		binary = path
		return m.Run()
	}))
}

// path returns the path of a file of the repository.
func path(t *testing.T, name string) string {
	t.Helper()
	return filepath.Join(testenv.RepoRoot(t), name)
}

// glob returns the files of the repository that a pattern matches. The test fails if there is none.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(path(t, pattern))
	if err == nil && len(files) == 0 {
		err = errors.New("no file matches")
	}
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}

// promtool runs promtool. If it finds mistakes, promtool returns an error with its output.
func promtool(t *testing.T, stdin string, args ...string) error {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "promtool", "PROMTOOL_BIN"), args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("promtool %s: %w\n%s", strings.Join(args, " "), err, out.String())
	}
	return nil
}

// replaced replaces texts, given as pairs of old and new text. Each old text must occur exactly once.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if n := strings.Count(text, pair[0]); n != 1 {
			t.Fatalf("%q occurs %d times, want once, in\n%s", pair[0], n, text)
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	return text
}
