package e2e

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// The headers by which the application knows who calls, and the one that tells it that nobody has been asked.
var (
	identityHeaders = []string{"x-auth-owner", "x-auth-plan", "x-auth-method", "x-auth-key-id"}
	nobodyAsked     = "x-envoy-auth-failure-mode-allowed"
)

// TestSpoofing sends what a client could write to be taken for another. Of none of it the application sees the value.
func TestSpoofing(t *testing.T) {
	t.Parallel()
	const evil = "evil"
	spellings := []struct {
		name  string
		write func(header string) [][2]string
	}{
		{"as it is", func(h string) [][2]string { return [][2]string{{h, evil}} }},
		{"twice", func(h string) [][2]string { return [][2]string{{h, evil}, {h, evil + "2"}} }},
		{"in capitals", func(h string) [][2]string { return [][2]string{{strings.ToUpper(h), evil}} }},
		{"with underscores", func(h string) [][2]string { return [][2]string{{strings.ReplaceAll(h, "-", "_"), evil}} }},
		{"with one underscore", func(h string) [][2]string { return [][2]string{{strings.Replace(h, "-", "_", 1), evil}} }},
		{"empty and full", func(h string) [][2]string { return [][2]string{{h, ""}, {h, evil}} }},
		{"as one that ends with the connection", func(h string) [][2]string { return [][2]string{{h, evil}, {"connection", h}} }},
		{"as a list", func(h string) [][2]string { return [][2]string{{h, "ann, " + evil}} }},
	}
	letThrough := instead("headers_with_underscores_action: REJECT_REQUEST", "headers_with_underscores_action: ALLOW")
	for _, variant := range []struct {
		name string
		// Whether Envoy removes the identity headers, too, or leaves that to the service.
		early bool
		edits []edit
	}{
		// Envoy refuses names with underscores; they are sent through, to see that they come to nothing without that, too.
		{"the sample configuration", true, nil},
		{"underscores let through", true, []edit{letThrough}},
		{"the removal of docs/ext_authz.md", true, []edit{
			letThrough, withoutEarlyRemoval,
			func(t *testing.T, config string) string {
				const indent, next = "\n                ", "\n                route_config:\n"
				early := block(t, "docs/ext_authz.md", "yaml", "early_header_mutation_extensions")
				early = indent + strings.ReplaceAll(strings.TrimRight(early, "\n"), "\n", indent)
				return instead(next, early+next)(t, config)
			},
		}},
		{"the service alone", false, []edit{letThrough, withoutEarlyRemoval}},
		{"the service alone, headers of one name joined", false, []edit{
			letThrough, withoutEarlyRemoval, instead("encode_raw_headers: true", "encode_raw_headers: false"),
		}},
		{"the filter of docs/ext_authz.md", false, []edit{
			letThrough, withoutEarlyRemoval,
			func(t *testing.T, config string) string {
				filter := instead("timeout: 0.2s", "timeout: "+longTimeout)(t, block(t, "docs/ext_authz.md", "yaml", "encode_raw_headers: true"))
				return inPlaceOf(extAuthz, filter)(t, config)
			},
		}},
	} {
		t.Run(variant.name, func(t *testing.T) {
			t.Parallel()
			s := startShop(t, variant.edits...)
			bob := s.issuer.bearer(t, claims{"sub": "bob"}) // without a plan, so that a header has to be removed
			for _, path := range []string{"/", "/public/logo.png", "/healthz"} {
				for _, spelling := range spellings {
					for _, name := range append(slices.Clone(identityHeaders), nobodyAsked) {
						// The service is not asked about /healthz: there Envoy alone removes what the client sends, and that
						// the service was not asked is true.
						if path == "/healthz" && (name == nobodyAsked || !variant.early) {
							continue
						}
						c := get(path, spelling.write(name)...)
						if path == "/" {
							c.header = append(c.header, bob)
						}
						testSpoof(t, s, spelling.name+", "+name, c, evil)
					}
				}
			}
		})
	}
}

func testSpoof(t *testing.T, s *shop, name string, c call, evil string) {
	t.Helper()
	a := s.do(t, c)
	if a.status == http.StatusBadRequest && strings.Contains(name, "underscore") {
		return
	}
	if a.status != http.StatusOK {
		t.Errorf("%s, %s: got %d %s, want 200", c.path, name, a.status, a.body)
	}
	for header, values := range a.saw() {
		if slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, evil) }) {
			t.Errorf("%s, %s: the application saw %s: %q", c.path, name, header, values)
		}
	}
	if got := a.saw().Values("X-Auth-Owner"); c.path == "/" && !slices.Equal(got, []string{"bob"}) {
		t.Errorf("%s, %s: the application saw the owner %q, want bob", c.path, name, got)
	}
}
