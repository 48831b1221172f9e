package docs

import "testing"

// TestMission checks docs/reference/mission.md: each sentence names tests that exist.
func TestMission(t *testing.T) {
	const least = 50 // the page has more
	if n := len(testedRows(t, "docs/reference/mission.md")); n < least {
		t.Errorf("docs/reference/mission.md: found %d sentences, want at least %d", n, least)
	}
}
