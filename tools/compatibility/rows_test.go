package compatibility_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/tools/compatibility"
)

// TestRows finds each row in the tables of its page.
func TestRows(t *testing.T) {
	for _, page := range compatibility.Pages() {
		text := testenv.RepoFile(t, page.Path)
		for _, row := range page.Rows {
			if n := strings.Count(text, "\n| "+string(row)+" |"); n != 1 {
				t.Errorf("%s has %d rows %q, want 1", page.Path, n, row)
			}
		}
	}
}
