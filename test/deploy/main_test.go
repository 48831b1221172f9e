// Package deploy checks what is deployed to Kubernetes: the Helm chart, the kustomizations, and every other manifest of the
// project. There is no cluster here. Objects are held against the schemas of the API server and of the operators whose objects
// they are; what a pod would run is run, with the environment and the files that the kubelet would give it, and its probes
// are asked.
package deploy

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

var update = flag.Bool("update", false, "write the chart's schema and table of values")

// Paths that TestMain can hand over in no other way: of the service, and of the schemas that kubeconform reads.
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

// output runs a program and returns what it printed to stdout, and an error that has what it printed to stderr.
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

// write makes a file, and the directories that it lies in.
func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
