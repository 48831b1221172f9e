package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// migrationEnvoy is a configuration of Envoy for the parts that pages of docs/migration have.
const migrationEnvoy = `static_resources:
  listeners:
  - name: http
    address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          FILTERS
            - name: envoy.filters.http.router
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              LIMITS
              routes:
              ROUTES
              - match: { prefix: / }
                route: { cluster: application }
  clusters:
  - { name: application }
  - { name: extauthz }
  - { name: ratelimit }
`

// indented replaces a word that stands alone on a line by a text, each line of it as far in as the word.
func indented(config, word, text string) string {
	before, after, _ := strings.Cut(config, word+"\n")
	indent := before[strings.LastIndexByte(before, '\n'):]
	return before + strings.ReplaceAll(strings.TrimSpace(text), "\n", indent) + "\n" + after
}

// TestMigrationEnvoy lets Envoy check what the pages of docs/migration and `extauthz-tools migrate spring` say about
// its configuration.
func TestMigrationEnvoy(t *testing.T) {
	t.Parallel()
	const routes = `spring.cloud.gateway.routes:
  - id: a
    predicates: ["Path=/a/{id}/b.c", "Method=GET,POST"]
    filters: &limit
      - {name: RequestRateLimiter, args: {redis-rate-limiter: {replenishRate: 1, burstCapacity: 5, requestedTokens: 2}}}
  - {id: b, predicates: [Path=/b], filters: *limit}
  - {id: c, predicates: [Path=/c/**], filters: *limit}
  - {id: d, predicates: [Path=/**], filters: *limit}
`
	cmd := tools(t, "migrate", "spring", "-o", "json", "-")
	cmd.Stdin = strings.NewReader(routes)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("extauthz-tools migrate spring: %v\n%s", err, out)
	}
	var converted struct {
		Routes string `json:"envoy_routes"`
	}
	if err := json.Unmarshal(out, &converted); err != nil || strings.Count(converted.Routes, "- match:") != 4 {
		t.Fatalf("%v, routes:\n%s", err, converted.Routes)
	}
	config := indented(migrationEnvoy, "FILTERS", block(t, "docs/migration/from-envoyproxy-ratelimit.md", "yaml",
		"name: shadow"))
	config = indented(config, "LIMITS", block(t, "docs/migration/from-limitador.md", "yaml", "rate_limits:"))
	config = indented(config, "ROUTES", converted.Routes)
	if err := testenv.ValidateEnvoy(t, config); err != nil {
		t.Errorf("%v\n%s", err, config)
	}
}
