package bucket_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// addedAlgorithm are the files that TestAddAnAlgorithm adds. The algorithm counts as fixed_window does, under another
// name.
var addedAlgorithm = map[string]string{
	"pkg/ratelimit/bucket/aligned_window.go":  "package bucket\n\ntype alignedWindow struct{ fixedWindow }\n",
	"pkg/ratelimit/bucket/aligned_window.lua": "return engine(5, merging) -- fixed_window\n",
	"pkg/ratelimit/bucket/testdata/aligned_window.txt": `== each window counts from 0
limit a 2/1m
59s  a:2 -> allowed a=0
59s  a:1 -> denied retry 1s a!0
1m   a:2 -> allowed a=0
`,
}

// addedRow are the lines that TestAddAnAlgorithm adds to registry.go, each after the line that it follows.
var addedRow = [][2]string{
	{"\tFixedWindow\n", "\t// AlignedWindow is FixedWindow under another name.\n\tAlignedWindow\n"},
	{"engine: fixedWindow{}},\n", "\tAlignedWindow: " +
		"{name: \"aligned_window\", letter: 'a', most: MaxRequests, resets: true, engine: alignedWindow{}},\n"},
}

// TestAddAnAlgorithm adds an algorithm to a copy of the module: a constant, a row of the registry, a Go file, a Lua
// file and a file of cases. Both stores, the vectors and the comparison of Go with Lua then have it without any other
// change.
func TestAddAnAlgorithm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, part := range []string{"internal", "pkg", "test/testenv", "testdata"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join("..", "..", "..", part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		write(t, filepath.Join(dir, name), read(t, filepath.Join("..", "..", "..", name)))
	}
	for name, text := range addedAlgorithm {
		write(t, filepath.Join(dir, name), text)
	}
	registry := filepath.Join(dir, "pkg/ratelimit/bucket/registry.go")
	text := read(t, registry)
	for _, lines := range addedRow {
		if strings.Count(text, lines[0]) != 1 {
			t.Fatalf("registry.go has %q %d times, want 1", lines[0], strings.Count(text, lines[0]))
		}
		text = strings.Replace(text, lines[0], lines[0]+lines[1], 1)
	}
	write(t, registry, text)

	for _, args := range [][]string{
		{"-run=^(TestVectors|TestCases|TestConformance|TestWalk)$",
			"./pkg/ratelimit/bucket", "./pkg/ratelimit/memstore", "./pkg/ratelimit/redisstore"},
		{"-run=Test/aligned_window", "./pkg/ratelimit/nearstore"},
	} {
		cmd := exec.CommandContext(t.Context(), "go", append([]string{"test"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cmd, err, out)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
