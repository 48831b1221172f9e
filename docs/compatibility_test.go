package docs

import (
	"slices"
	"testing"
)

// verdicts are what docs/reference/compatibility.md says of each row.
var verdicts = []string{"same", "better", "better, strict: same", "different", "not"}

// TestCompatibility checks docs/reference/compatibility.md: each row compares the two services in five columns, and
// names tests that exist.
func TestCompatibility(t *testing.T) {
	const least = 100 // the page has more
	rows := testedRows(t, "docs/reference/compatibility.md", "Variables")
	if len(rows) < least {
		t.Errorf("docs/reference/compatibility.md: found %d rows, want at least %d", len(rows), least)
	}
	for _, r := range rows {
		if len(r.cells) != 5 || !slices.Contains(verdicts, r.cells[3]) {
			t.Errorf("docs/reference/compatibility.md:%d: want what, envoyproxy/ratelimit, extauthz, one of %q, and tests: %q",
				r.line, verdicts, r.cells)
		}
	}
}
