package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestSpring serves what docs/spring.md shows, and makes its requests.
func TestSpring(t *testing.T) {
	t.Parallel()
	const page = "docs/spring.md"
	rules, routes := block(t, page, "yaml", "domain: gateway"), block(t, page, "yaml", "requested_tokens: ")
	const indent = "\n                        "
	itsRoutes := instead("\n                      routes:\n",
		"\n                      routes:"+indent+strings.ReplaceAll(strings.TrimSpace(routes), "\n", indent)+"\n")

	consoles := blocks(t, page, "console")
	for _, variant := range []struct {
		name     string
		edits    []edit // of the rules
		headers  string // RESPONSE_HEADERS
		consoles int    // how many blocks of the page are about it
	}{
		{name: "as it is there", headers: "spring", consoles: 4},
		{name: "denyEmptyKey: false", headers: "spring", consoles: 1,
			edits: []edit{instead("absent: { status: 403 }", "absent: { pass: true }")}},
		{name: "a bucket for nobody", headers: "spring", consoles: 1,
			edits: []edit{instead("absent: { status: 403 }", "absent: { pass: true }"), instead("{ field: owner }", "{ field: owner, default: nobody }")}},
		{name: "includeHeaders: false", headers: "off", consoles: 1},
	} {
		if len(consoles) < variant.consoles {
			t.Fatalf("%s has too few blocks for %q", page, variant.name)
		}
		mine := consoles[:variant.consoles]
		consoles = consoles[variant.consoles:]
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			served := rules
			for _, e := range variant.edits {
				served = e(t, served)
			}
			root, _ := rulesDirectory(t, served)
			keys := keysInFile(t)
			words := map[string]string{}
			for _, made := range regexp.MustCompile(`(\w+)=\$\(extauthz keys create (.*)\)`).FindAllStringSubmatch(block(t, page, "sh", "keys create"), -1) {
				words[made[1]] = keys.create(t, strings.Fields(made[2])...)
			}
			service := startService(t, append(keys.environment, "RUNTIME_ROOT="+root, "RESPONSE_HEADERS="+variant.headers)...)
			envoy := startEnvoy(t, service.grpcPort, itsRoutes)
			for _, console := range mine {
				envoy.holds(t, console, words)
			}
		})
	}
	if len(consoles) > 0 {
		t.Errorf("%s has %d more blocks, which nobody has tried", page, len(consoles))
	}
}
