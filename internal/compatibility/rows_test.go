package compatibility_test

import (
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/compatibility"
	"github.com/extauthz/extauthz/internal/testenv"
)

// TestRows finds each row in the tables of docs/compatibility.md.
func TestRows(t *testing.T) {
	page := testenv.RepoFile(t, "docs/compatibility.md")
	for _, row := range compatibility.Rows() {
		if n := strings.Count(page, "\n| "+string(row)+" |"); n != 1 {
			t.Errorf("docs/compatibility.md has %d rows %q, want 1", n, row)
		}
	}
}
