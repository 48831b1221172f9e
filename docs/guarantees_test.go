package docs

import "testing"

// TestGuarantees checks docs/guarantees.md: each guarantee and each bound names tests that exist.
func TestGuarantees(t *testing.T) {
	const least = 14 // the page has more
	rows := testedRows(t, "docs/guarantees.md", "What is lost when a process dies", "What Redis must be configured for")
	if len(rows) < least {
		t.Errorf("docs/guarantees.md: found %d rows, want at least %d", len(rows), least)
	}
}
