package docs

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// testLink matches a link to a test: [TestName](../path/file_test.go).
var testLink = regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\((\S+_test\.go)\)`)

// row is a row of a table whose last column names the tests that show what the row states.
type row struct {
	line  int // from 1
	cells []string
}

// testedRows returns the rows of all tables of a page, except for those in the sections without. It reports each row
// that names no test, and each test that does not exist.
func testedRows(t *testing.T, page string, without ...string) (rows []row) {
	t.Helper()
	section := ""
	for i, line := range strings.Split(testenv.RepoFile(t, page), "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = title
		}
		if !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| test |") || slices.Contains(without, section) {
			continue
		}
		links := testLink.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("%s:%d: this row names no test: %s", page, i+1, line)
		}
		for _, link := range links {
			name, file := link[1], path.Join(path.Dir(page), link[2])
			if !strings.Contains(testenv.RepoFile(t, file), "\nfunc "+name+"(") {
				t.Errorf("%s:%d: %s has no %s", page, i+1, file, name)
			}
		}
		rows = append(rows, row{line: i + 1, cells: strings.Split(strings.Trim(line, "| "), " | ")})
	}
	return rows
}
