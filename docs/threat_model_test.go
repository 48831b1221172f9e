package docs

import (
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/internal/testenv"
)

// testLink matches a link to a test: [TestName](../path/file_test.go).
var testLink = regexp.MustCompile(`\[((?:Test|Fuzz)\w+)\]\((\S+_test\.go)\)`)

// TestThreatModel checks docs/threat-model.md: each row about an attacker names the tests that prove it, and the
// tests exist.
func TestThreatModel(t *testing.T) {
	const rows = 30 // the page has more
	found, attacker := 0, false
	for i, line := range strings.Split(testenv.RepoFile(t, "docs/threat-model.md"), "\n") {
		if strings.HasPrefix(line, "## ") {
			attacker = line != "## Ports"
		}
		if !attacker || !strings.HasPrefix(line, "| ") || strings.HasSuffix(line, "| test |") {
			continue
		}
		links := testLink.FindAllStringSubmatch(line, -1)
		if len(links) == 0 {
			t.Errorf("docs/threat-model.md:%d: this row names no test: %s", i+1, line)
		}
		for _, link := range links {
			name, file := link[1], path.Join("docs", link[2])
			if !strings.Contains(testenv.RepoFile(t, file), "\nfunc "+name+"(") {
				t.Errorf("docs/threat-model.md:%d: %s has no %s", i+1, file, name)
			}
		}
		found++
	}
	if found < rows {
		t.Errorf("docs/threat-model.md: found %d rows about attackers, want at least %d", found, rows)
	}
}
