package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// TestSpring runs the configurations of docs/migration/from-spring-cloud-gateway.md and makes the requests of that
// page.
func TestSpring(t *testing.T) {
	t.Parallel()
	const page = "docs/migration/from-spring-cloud-gateway.md"
	rules, routes := block(t, page, "yaml", "domain: gateway"), block(t, page, "yaml", "requested_tokens: ")
	const indent = "\n                        "
	pageRoutes := instead("\n                      routes:\n",
		"\n                      routes:"+indent+strings.ReplaceAll(strings.TrimSpace(routes), "\n", indent)+"\n")

	consoles := blocks(t, page, "console")
	for _, variant := range []struct {
		name     string
		edits    []edit // of the rules
		headers  string // RESPONSE_HEADERS
		consoles int    // number of blocks of the page for this variant
	}{
		{name: "unchanged", headers: "spring", consoles: 4},
		{name: "denyEmptyKey: false", headers: "spring", consoles: 1,
			edits: []edit{instead("absent: { status: 403 }", "absent: { pass: true }")}},
		{name: "a bucket for anonymous requests", headers: "spring", consoles: 1,
			edits: []edit{instead("absent: { status: 403 }", "absent: { pass: true }"),
				instead("{ field: owner }", "{ field: owner, default: anonymous }")}},
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
			create := regexp.MustCompile(`(\w+)=\$\(extauthz keys create (.*)\)`)
			for _, m := range create.FindAllStringSubmatch(block(t, page, "sh", "keys create"), -1) {
				words[m[1]] = keys.create(t, strings.Fields(m[2])...)
			}
			service := startService(t, append(keys.environment, "RUNTIME_ROOT="+root, "RESPONSE_HEADERS="+variant.headers)...)
			envoy := startEnvoy(t, service.grpcPort, pageRoutes)
			for _, console := range mine {
				envoy.checkExamples(t, console, words)
			}
		})
	}
	if len(consoles) > 0 {
		t.Errorf("%s has %d more blocks, which this test does not run", page, len(consoles))
	}
}
