// Package cases runs text cases: txtar archives with inputs and the expected output of each.
package cases

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

// Run runs the cases of the txtar archives that a pattern matches. It calls output with each NAME.yaml and the
// comment of the archive, and compares the result with NAME.want. With update it writes NAME.want instead.
func Run(t *testing.T, pattern string, update bool, output func(t *testing.T, comment string, f txtar.File) string) {
	for _, path := range Archives(t, pattern) {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range slices.Clone(archive.Files) {
			name, isCase := strings.CutSuffix(f.Name, ".yaml")
			if !isCase {
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+name, func(t *testing.T) {
				got := output(t, string(archive.Comment), f)
				if update {
					Set(archive, f.Name, name+".want", got)
					return
				}
				Check(t, archive, name+".want", f.Data, got)
			})
		}
		if update {
			Write(t, path, archive)
		}
	}
}

// Archives returns the paths that a pattern matches. The test fails if there is none.
func Archives(t testing.TB, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no archives match %s: %v", pattern, err)
	}
	return paths
}

// Write writes an archive to a file.
func Write(t *testing.T, path string, archive *txtar.Archive) {
	t.Helper()
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Set replaces a file of an archive, or inserts it after another file.
func Set(archive *txtar.Archive, after, name, content string) {
	file := txtar.File{Name: name, Data: []byte(content)}
	if i := index(archive, name); i >= 0 {
		archive.Files[i] = file
		return
	}
	archive.Files = slices.Insert(archive.Files, index(archive, after)+1, file)
}

func index(archive *txtar.Archive, name string) int {
	return slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == name })
}

// Check compares the output for an input with a file of an archive.
func Check(t *testing.T, archive *txtar.Archive, name string, input []byte, got string) {
	t.Helper()
	i := index(archive, name)
	if i < 0 {
		t.Errorf("no %s: run the test with -update and review the file that it writes", name)
	} else if diff := cmp.Diff(string(archive.Files[i].Data), got); diff != "" {
		t.Errorf("%s\nwant (-) and got (+):\n%s", input, diff)
	}
}
