package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/extauthz/extauthz/test/testenv"
)

var update = flag.Bool("update", false, "redraw the graph of packages in docs/reference/packages.md")

const module = "github.com/extauthz/extauthz/"

// TestArrows compares the graph of docs/reference/packages.md with the imports of the packages. `go test ./docs
// -update` draws the graph.
func TestArrows(t *testing.T) {
	const begin, end = "<!-- arrows -->\n", "<!-- /arrows -->\n"
	page := testenv.RepoFile(t, "docs/reference/packages.md")
	before, rest, found := strings.Cut(page, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		t.Fatalf("docs/reference/packages.md has no markers for the graph: want %q and %q", begin, end)
	}
	want := before + begin + picture(imports(t)) + end + after
	if *update {
		file := filepath.Join(testenv.RepoRoot(t), "docs", "reference", "packages.md")
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("the graph of docs/reference/packages.md is out of date; `go test ./docs -update` draws it (-want +got):\n"+
			"%s", diff)
	}
}

// imports returns, for each package of the service, the packages of this project that it imports.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./cmd/extauthz")
	list.Dir = testenv.RepoRoot(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	arrows := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		names := strings.Fields(line)
		name, ours := strings.CutPrefix(names[0], module)
		if !ours {
			continue
		}
		arrows[name] = nil
		if strings.HasPrefix(name, "tools/") || strings.HasPrefix(name, "test/") {
			t.Errorf("the service has %s", name)
		}
		for _, imported := range names[1:] {
			if imported, ours := strings.CutPrefix(imported, module); ours {
				arrows[name] = append(arrows[name], imported)
			}
		}
	}
	return arrows
}

// picture draws the imports as a Mermaid graph. It omits an arrow if other arrows lead to the same package.
func picture(arrows map[string][]string) string {
	leads := map[string]map[string]bool{} // the direct and indirect imports of a package
	var follow func(name string) map[string]bool
	follow = func(name string) map[string]bool {
		if leads[name] == nil {
			leads[name] = map[string]bool{}
			for _, imported := range arrows[name] {
				leads[name][imported] = true
				maps.Copy(leads[name], follow(imported))
			}
		}
		return leads[name]
	}
	id := strings.NewReplacer("/", "_").Replace
	var b strings.Builder
	b.WriteString("```mermaid\ngraph TD\n")
	for _, name := range slices.Sorted(maps.Keys(arrows)) {
		fmt.Fprintf(&b, "  %s[%s]\n", id(name), name)
	}
	for _, name := range slices.Sorted(maps.Keys(arrows)) {
		for _, imported := range slices.Sorted(slices.Values(arrows[name])) {
			another := func(other string) bool { return other != imported && follow(other)[imported] }
			if !slices.ContainsFunc(arrows[name], another) {
				fmt.Fprintf(&b, "  %s --> %s\n", id(name), id(imported))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}
