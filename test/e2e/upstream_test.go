package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestHeadersForTheUpstream has LIMIT_REQUEST_HEADERS_ENABLED. Envoy adds the headers to the request for the
// application, not to the answer for the client. It adds them to those of the client, unless it removes these early, as
// docs/headers.md shows.
func TestHeadersForTheUpstream(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, `domain: sample
descriptors:
  - key: action
    value: claim_reward
    descriptors:
      - {key: device, rate_limit: {unit: year, requests_per_unit: 2, algorithm: fixed_window}}
      - {key: device, value: tried, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
`)
	port := startService(t, "RUNTIME_ROOT="+root, "LIMIT_REQUEST_HEADERS_ENABLED=true",
		"LIMIT_REQUEST_LIMIT_HEADER=X-Quota", "LIMIT_REQUEST_REMAINING_HEADER=X-Quota-Left",
		"LIMIT_REQUEST_RESET_HEADER=X-Quota-Reset").grpcPort
	adds := startEnvoy(t, port, without(extAuthz))
	removes := startEnvoy(t, port, without(extAuthz), withoutEarlyRemoval, func(t *testing.T, config string) string {
		const indent, next = "\n                ", "\n                route_config:\n"
		early := strings.TrimRight(block(t, "docs/headers.md", "yaml", "early_header_mutation_extensions"), "\n")
		return instead(next, indent+strings.ReplaceAll(early, "\n", indent)+next)(t, config)
	})
	late := startEnvoy(t, port, without(extAuthz), instead("\n                  name: ingress\n",
		"\n                  name: ingress\n                  request_headers_to_remove: [x-quota-left]\n"))
	for _, c := range []struct {
		name, device, forged string
		envoy                *proxy
		status               int
		limit, left          []string
	}{
		{"the first of two", "a", "", adds, http.StatusOK, []string{"2"}, []string{"1"}},
		{"the second", "a", "", adds, http.StatusOK, []string{"2"}, []string{"0"}},
		{"a denied request does not reach the application", "a", "", adds, http.StatusTooManyRequests, nil, nil},
		{"shadow mode", "tried", "", adds, http.StatusOK, []string{"1"}, []string{"0"}},
		{"over a limit in shadow mode", "tried", "", adds, http.StatusOK, []string{"1"}, []string{"0"}},
		{"beside the header of a client", "b", "99", adds, http.StatusOK, []string{"2"}, []string{"99", "1"}},
		{"in place of the header of a client", "b", "99", removes, http.StatusOK, []string{"2"}, []string{"0"}},
		{"a route removes both", "c", "99", late, http.StatusOK, []string{"2"}, nil},
	} {
		request := claim(c.device)
		if c.forged != "" {
			request.header = append(request.header, [2]string{"X-Quota-Left", c.forged})
		}
		a := c.envoy.do(t, request)
		seen := a.saw()
		if a.status != c.status || !slices.Equal(seen.Values("X-Quota"), c.limit) ||
			!slices.Equal(seen.Values("X-Quota-Left"), c.left) || len(seen.Values("X-Quota-Reset")) != len(c.limit) {
			t.Errorf("%s: got %d, the application saw %v; want %d, limit %q, left %q", c.name, a.status, seen, c.status,
				c.limit, c.left)
		}
		if a.header.Get("X-Quota") != "" {
			t.Errorf("%s: the client saw %v", c.name, a.header)
		}
	}
}
