package docs

import "testing"

// TestThreatModel checks docs/threat-model.md: each row about an attacker names the tests that prove it, and the
// tests exist.
func TestThreatModel(t *testing.T) {
	const least = 30 // the page has more
	if n := len(testedRows(t, "docs/threat-model.md", "Ports")); n < least {
		t.Errorf("docs/threat-model.md: found %d rows about attackers, want at least %d", n, least)
	}
}
