package docs

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/pkg/rules/file"
)

// TestRuleFilesLoad loads every rule file that README.md and docs/ show.
func TestRuleFilesLoad(t *testing.T) {
	root := os.DirFS(testenv.RepoRoot(t))
	pages, err := fs.Glob(root, "docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	loaded := 0
	for _, page := range append(pages, "README.md") {
		for rest := testenv.RepoFile(t, page); ; {
			_, after, found := strings.Cut(rest, "\n```yaml\ndomain: ")
			if !found {
				break
			}
			block, after, _ := strings.Cut(after, "\n```")
			_, problems := file.Parse([]file.File{{Name: path.Base(page) + ".yaml", Content: []byte("domain: " + block)}}, file.Config{})
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
