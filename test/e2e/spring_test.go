package e2e

import (
	"regexp"
	"strings"
	"testing"
)

// emptyKeyPasses are requests without a key, and with an unknown one, and what the page says about them.
const emptyKeyPasses = `$ curl -si localhost:10000/orders/1
HTTP/1.1 200 OK

$ curl -si localhost:10000/orders/1 -H "x-api-key: unknown"
HTTP/1.1 403 Forbidden
`

// TestSpring runs the configurations of docs/migration/from-spring-cloud-gateway.md and makes the requests of that
// page.
func TestSpring(t *testing.T) {
	t.Parallel()
	const page = "docs/migration/from-spring-cloud-gateway.md"
	rules, routes := block(t, page, "yaml", "domain: gateway"), block(t, page, "yaml", "requested_tokens: ")
	const indent = "\n                        "
	pageRoutes := instead("\n                      routes:\n",
		"\n                      routes:"+indent+strings.ReplaceAll(strings.TrimSpace(routes), "\n", indent)+"\n")

	for _, variant := range []struct {
		name     string
		edits    []edit // of the rules
		requests string
	}{
		{name: "unchanged", requests: block(t, page, "console", "curl")},
		{name: "denyEmptyKey: false", requests: emptyKeyPasses,
			edits: []edit{instead("absent: { status: 403 }", "absent: { pass: true }")}},
	} {
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
			service := startService(t, append(keys.environment, "RUNTIME_ROOT="+root, "RESPONSE_HEADERS=spring")...)
			envoy := startEnvoy(t, service.grpcPort, pageRoutes)
			envoy.checkExamples(t, variant.requests, words)
		})
	}
	if n := len(blocks(t, page, "console")); n != 1 {
		t.Errorf("%s has %d blocks of requests, this test runs 1", page, n)
	}
}
