package docs

import (
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/pkg/rules/file"
	"github.com/extauthz/extauthz/pkg/rules/xds"
	"github.com/extauthz/extauthz/test/testenv"
)

// TestRuleFilesLoad loads every rule file in README.md, docs/ and docs/migration/.
func TestRuleFilesLoad(t *testing.T) {
	root := os.DirFS(testenv.RepoRoot(t))
	var pages []string
	for _, pattern := range []string{"docs/*.md", "docs/migration/*.md"} {
		found, err := fs.Glob(root, pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, found...)
	}
	loaded := 0
	for _, page := range append(pages, "README.md") {
		for rest := testenv.RepoFile(t, page); ; {
			_, after, found := strings.Cut(rest, "\n```yaml\ndomain: ")
			if !found {
				break
			}
			block, after, _ := strings.Cut(after, "\n```")
			rules := file.File{Name: path.Base(page) + ".yaml", Content: []byte("domain: " + block)}
			_, problems := file.Parse([]file.File{rules}, file.Config{})
			if err := problems.Err(); err != nil {
				t.Errorf("%s: %v", page, err)
			}
			loaded, rest = loaded+1, after
		}
	}
	if loaded < 4 {
		t.Errorf("found %d rule files in the documentation, want at least 4", loaded)
	}
}

// TestOverlayLoads loads the overlay of xds.md. Without rules, its entries match nothing.
func TestOverlayLoads(t *testing.T) {
	_, block, _ := strings.Cut(testenv.RepoFile(t, "docs/xds.md"), "\n```yaml\n")
	block, _, _ = strings.Cut(block, "\n```")
	overlay := filepath.Join(t.TempDir(), "overlay.yaml")
	if err := os.WriteFile(overlay, []byte(block), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := xds.New(xds.Config{Server: "localhost:1", Overlay: overlay, RequireEnd: true, NoWait: true,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if _, problems := client.Load(t.Context()); problems.HasErrors() || block == "" {
		t.Error(problems)
	}
}

// TestTutorialMistakes makes the two mistakes of the tutorial in the sample, and compares the messages with the page.
func TestTutorialMistakes(t *testing.T) {
	sample := testenv.RepoFile(t, "internal/service/sample/sample.yaml")
	sample = strings.Replace(sample, "requests_per_unit: 5", "requests_per_unti: 5", 1)
	sample = strings.Replace(sample, "unit: second", "unit: secnod", 1)
	_, problems := file.Parse([]file.File{{Name: "rules/sample.yaml", Content: []byte(sample)}}, file.Config{})
	page := testenv.RepoFile(t, "docs/tutorial.md")
	if len(problems) != 2 {
		t.Errorf("got %d problems, want 2", len(problems))
	}
	for _, p := range problems {
		if !strings.Contains(page, p.String()) {
			t.Errorf("docs/tutorial.md does not show:\n%s", p)
		}
	}
}
