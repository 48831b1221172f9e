// Package observability checks what is deployed to watch the service: alerts, dashboards, Prometheus' configuration and what the
// documentation says of metrics. Their expressions are parsed, and answered by a real Prometheus that scrapes the real service and
// a real Envoy; a metric, a label or a value that nobody exports any more fails a test.
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

	"github.com/extauthz/extauthz/internal/testenv"
)

// binary is the path of the service, built once: TestMain can hand it over in no other way.
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

// glob returns the files of the repository that a pattern names, at least one.
func glob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(path(t, pattern))
	if err == nil && len(files) == 0 {
		err = errors.New("there are none")
	}
	if err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	return files
}

// promtool runs promtool and returns an error that holds its words when it finds something.
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

// replaced puts texts in the place of others, each of which has to be there once.
func replaced(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if n := strings.Count(text, pair[0]); n != 1 {
			t.Fatalf("%q is there %d times, want it once, in\n%s", pair[0], n, text)
		}
		text = strings.Replace(text, pair[0], pair[1], 1)
	}
	return text
}
