package e2e

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestUnlistedIdentityHeaders omits the identity headers from allowed_upstream_headers. Envoy then drops the headers
// that the service sets. The application must not receive those of the client in their place.
func TestUnlistedIdentityHeaders(t *testing.T) {
	t.Parallel()
	service := startService(t, "AUTHZ_HTTP_TIMEOUT=2s", "AUTHZ_HTTP_SOURCE_HEADER=x-envoy-source")
	envoy := startEnvoyWith(t, "envoy/http-ext_authz.yaml", testenv.Ports{
		8000: testenv.Port(t, application(t)), 8080: testenv.Port(t, strings.TrimPrefix(service.http, "http://")),
	}, func(t *testing.T, config string) string {
		for _, name := range identityHeaders {
			config = instead("- { exact: "+name+" }", "- { exact: x-other-"+name+" }")(t, config)
		}
		return config
	})
	header := [][2]string{demo}
	for _, name := range identityHeaders {
		// The service sees none of these spellings, because allowed_headers does not list them.
		header = append(header, [2]string{name, "evil"}, [2]string{strings.ReplaceAll(name, "-", "."), "evil"})
	}
	a := envoy.do(t, get("/", header...))
	if a.status != http.StatusOK {
		t.Fatalf("got %d %s, want 200", a.status, a.body)
	}
	for name, values := range a.saw() {
		if strings.Contains(strings.Join(values, " "), "evil") {
			t.Errorf("the application received the client's %s: %q", name, values)
		}
	}
}

// TestCheckOfRunningEnvoy compares the configuration of a running Envoy with the rules, as docs/ext_authz.md shows. The
// sample is correct, and a route by plan is an error.
func TestCheckOfRunningEnvoy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, after string // a condition of a route, which replaces that of the sample
		want        string
	}{
		{"the sample", "{ name: x-device-id, present_match: true }", "ok: "},
		{"a route by plan", "{ name: x-auth-plan, present_match: true }",
			"error: Envoy chooses this route before ext_authz sets `x-auth-plan`"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			envoy := startEnvoy(t, testenv.FreePort(t), instead("{ name: x-device-id, present_match: true }", c.after))
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+envoy.Admin+"/config_dump", nil)
			if err != nil {
				t.Fatal(err)
			}
			_, dump := testenv.RoundTrip(t, http.DefaultTransport, req)
			file := filepath.Join(t.TempDir(), "dump.json")
			if err := os.WriteFile(file, []byte(dump), 0o600); err != nil {
				t.Fatal(err)
			}
			rules := filepath.Join(testenv.RepoRoot(t), "internal", "service", "sample")
			check := exec.Command(binary, "check", "--envoy", file, rules)
			out, err := check.CombinedOutput()
			if (err == nil) != strings.HasPrefix(c.want, "ok") || !strings.Contains(string(out), c.want) {
				t.Errorf("%s: %v\n%s\nwant %q in it", check, err, out, c.want)
			}
		})
	}
}

// TestRoutesByPlan adds a route for one plan. Envoy chooses the route before it calls the service, so a header of the
// client must not select this route. With clear_route_cache, Envoy chooses again after the service has set its
// headers.
func TestRoutesByPlan(t *testing.T) {
	t.Parallel()
	const anyPath = `
                        - match: { prefix: / }
                          route: { cluster: application }
`
	gold := func(more string) edit {
		return instead(anyPath, `
                        - match:
                            prefix: /
                            headers: [{ name: x-auth-plan, string_match: { exact: gold } }]
                          route: { cluster: application }
                          response_headers_to_add: [{ header: { key: x-route, value: gold } }]
`+more+anyPath)
	}
	open := gold("                          typed_per_filter_config: { envoy.filters.http.ext_authz: *not_here }\n")
	again := instead("clear_route_cache: false", "clear_route_cache: true")
	toApplication, toGold := http.Header{"X-Route": nil}, http.Header{"X-Route": {"gold"}}
	for _, c := range []struct {
		name  string
		edits []edit
		gold  http.Header // what a client on the plan gold gets
	}{
		{"the sample", []edit{gold("")}, toApplication},
		{"clear_route_cache", []edit{gold(""), again}, toGold},
		{"a route without ext_authz", []edit{open}, toApplication},
		{"a route without ext_authz, clear_route_cache", []edit{open, again}, toGold},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startShop(t, c.edits...)
			claim := [2]string{"x-auth-plan", "gold"}

			a := s.do(t, get("/", s.issuer.bearer(t, claims{"plan": "gold"})))
			wantHeaders(t, "a client on the plan gold", a.header, c.gold)
			a = s.do(t, get("/", s.issuer.bearer(t, claims{"plan": "trial"}), claim))
			wantHeaders(t, "a client on the plan trial", a.header, toApplication)
			wantHeaders(t, "the application", a.saw(), http.Header{"X-Auth-Plan": {"trial"}})
			if a := s.do(t, get("/", claim)); a.status != http.StatusUnauthorized {
				t.Errorf("without a credential: got %d, want 401", a.status)
			}
		})
	}
}
