// Package deploy tests the Helm chart, the kustomizations and every other manifest of the project, without a cluster.
// It validates objects with the schemas of the API server and of operators. It runs the service as the pod would,
// with the environment and the files that the kubelet would provide, and calls the probes.
package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

var update = flag.Bool("update", false, "write the chart's schema and table of values")

// The paths of the service and of the schemas for kubeconform, which TestMain makes once for all tests.
var (
	binary     string
	schemaRoot string
)

func TestMain(m *testing.M) {
	os.Exit(testenv.WithService(func(path string) int {
		binary, schemaRoot = path, filepath.Join(filepath.Dir(path), "schemas")
		if err := writeSchemas(schemaRoot); err != nil {
			fmt.Fprintln(os.Stderr, "make the schemas of Kubernetes objects:", err)
			return 1
		}
		return m.Run()
	}))
}

// output runs a program and returns its stdout. An error contains its stderr.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w\n%s", err, stderr.String())
	}
	return stdout.String(), nil
}

// path returns the path of a file of the repository.
func path(t *testing.T, names ...string) string {
	t.Helper()
	return filepath.Join(append([]string{testenv.RepoRoot(t)}, names...)...)
}

// read returns the content of a file.
func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// write writes a file and makes its directories.
func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
