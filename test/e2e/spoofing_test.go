package e2e

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// The headers that identify the caller for the application, and the header by which Envoy reports that the service
// did not answer.
var (
	identityHeaders    = []string{"x-auth-owner", "x-auth-plan", "x-auth-method", "x-auth-key-id"}
	failureModeAllowed = "x-envoy-auth-failure-mode-allowed"
)

// TestSpoofing sends variants of the identity headers. The application never receives their value.
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
		{"with dots", func(h string) [][2]string { return [][2]string{{strings.ReplaceAll(h, "-", "."), evil}} }},
		{"with one dot", func(h string) [][2]string { return [][2]string{{strings.Replace(h, "-", ".", 1), evil}} }},
		{"with an unusual character", func(h string) [][2]string {
			return [][2]string{{strings.ReplaceAll(h, "-", "~"),
				evil}}
		}},
		{"empty, then with a value", func(h string) [][2]string { return [][2]string{{h, ""}, {h, evil}} }},
		{"as a hop-by-hop header", func(h string) [][2]string { return [][2]string{{h, evil}, {"connection", h}} }},
		{"as a list", func(h string) [][2]string { return [][2]string{{h, "ann, " + evil}} }},
	}
	allowUnderscores := instead("headers_with_underscores_action: REJECT_REQUEST",
		"headers_with_underscores_action: ALLOW")
	for _, variant := range []struct {
		name string
		// early is true if Envoy removes the identity headers before the service does.
		early bool
		edits []edit
	}{
		// Envoy refuses names with underscores. The other variants allow them, because the service must not rely on that.
		{"the sample configuration", true, nil},
		{"underscores allowed", true, []edit{allowUnderscores}},
		{"the removal of docs/ext_authz.md", true, []edit{
			allowUnderscores, withoutEarlyRemoval,
			func(t *testing.T, config string) string {
				const indent, next = "\n                ", "\n                route_config:\n"
				early := block(t, "docs/ext_authz.md", "yaml", "early_header_mutation_extensions")
				early = indent + strings.ReplaceAll(strings.TrimRight(early, "\n"), "\n", indent)
				return instead(next, early+next)(t, config)
			},
		}},
		{"the service alone", false, []edit{allowUnderscores, withoutEarlyRemoval}},
		{"the service alone, headers of one name joined", false, []edit{
			allowUnderscores, withoutEarlyRemoval, instead("encode_raw_headers: true", "encode_raw_headers: false"),
		}},
		{"the filter of docs/ext_authz.md", false, []edit{
			allowUnderscores, withoutEarlyRemoval,
			func(t *testing.T, config string) string {
				filter := instead("timeout: 0.2s", "timeout: "+longTimeout)(t,
					block(t, "docs/ext_authz.md", "yaml", "encode_raw_headers: true"))
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
					for _, name := range append(slices.Clone(identityHeaders), failureModeAllowed) {
						// Envoy does not call the service for /healthz. Only Envoy removes headers there, and it does not
						// remove failureModeAllowed.
						if path == "/healthz" && (name == failureModeAllowed || !variant.early) {
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

// TestOverrideHeaders sends headers that some applications read in place of the path, host or method that was checked.
func TestOverrideHeaders(t *testing.T) {
	t.Parallel()
	const evil = "/internal"
	names := []string{
		"x-original-url", "x-original-uri", "x-rewrite-url", "x-rewrite-uri", "x-override-url", "x-http-path-override",
		"x-forwarded-uri", "x-forwarded-path", "x-forwarded-prefix", "x-script-name",
		"forwarded", "x-forwarded-host", "x-forwarded-server", "x-original-host", "x-host", "x-http-host-override",
		"x-http-method-override", "x-http-method", "x-method-override", "x-original-method", "x-forwarded-method",
		"x-original-path", "x-ms-original-url", "x-waws-unencoded-url", "x-invoke-path", "x-matched-path", "x-request-uri",
		"x-path", "x-uri", "x-envoy-original-method", "x-middleware-subrequest",
	}
	for _, c := range []struct {
		name, policy string
		kept         []string
	}{
		{"by default", "", nil},
		{"two of them kept", "  keep_headers: [X-Forwarded-Host, x-http-method-override]\n",
			[]string{"x-forwarded-host", "x-http-method-override"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			issuer := newIssuer(t)
			rules := instead("  preflight: allow\n", "  preflight: allow\n"+c.policy)(t, policy(t, issuer))
			root, _ := rulesDirectory(t, rules)
			service := startService(t, "RUNTIME_ROOT="+root, serverSecret, "AUTHZ_HTTP_TIMEOUT=2s")
			grpc := startEnvoy(t, service.grpcPort,
				instead("headers_with_underscores_action: REJECT_REQUEST", "headers_with_underscores_action: ALLOW"))
			overHTTP := startEnvoyWith(t, "envoy/http-ext_authz.yaml", testenv.Ports{
				8000: testenv.Port(t, application(t)), 8080: testenv.Port(t, strings.TrimPrefix(service.http, "http://")),
			})
			for protocol, envoy := range map[string]*proxy{"gRPC": grpc, "HTTP": overHTTP} {
				for _, name := range names {
					for _, spelling := range []string{
						name, strings.ToUpper(name), strings.ReplaceAll(name, "-", "_"),
						strings.ReplaceAll(name, "-", "."), strings.Replace(name, "-", ".", 1), strings.ReplaceAll(name, "-", "~"),
					} {
						if protocol == "HTTP" && strings.Contains(spelling, "_") {
							continue // Envoy refuses it in this configuration
						}
						a := envoy.do(t, get("/", issuer.bearer(t, nil), [2]string{spelling, evil}))
						got := strings.Contains(fmt.Sprint(a.saw()), evil)
						// A variant of a kept name is always removed.
						if want := slices.Contains(c.kept, strings.ToLower(spelling)); a.saw() == nil || got != want {
							t.Errorf("ext_authz over %s: with %s the application received %v, want it there: %t",
								protocol, spelling, a.saw(), want)
						}
					}
				}
			}
		})
	}
}

// TestTrailers sends an identity header as a trailer. The ext_authz filter cannot remove trailers, because they
// arrive after its answer. Envoy drops trailers of HTTP/1.1. Trailers of HTTP/2 reach an application that uses
// HTTP/2, as trailers and never as headers.
func TestTrailers(t *testing.T) {
	t.Parallel()
	var seen atomic.Pointer[http.Request]
	upstream := testenv.UpstreamFunc(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the trailers follow the body
		seen.Store(r)
	})
	s := startShop(t)
	envoy := startEnvoyWith(t, "envoy/envoy.yaml",
		testenv.Ports{8000: testenv.Port(t, upstream), 8081: s.service.grpcPort})
	for _, c := range []struct {
		protocol int
		want     []string // of the trailer
	}{{1, nil}, {2, []string{"evil"}}} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(c.protocol == 1)
		transport.Protocols.SetUnencryptedHTTP2(c.protocol == 2)
		defer transport.CloseIdleConnections()
		body := io.NopCloser(strings.NewReader("body"))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+envoy.addr+"/", body)
		if err != nil {
			t.Fatal(err)
		}
		bearer := s.issuer.bearer(t, nil)
		req.Header.Set(bearer[0], bearer[1])
		req.Trailer = http.Header{"X-Auth-Owner": {"evil"}}
		if resp, body := testenv.RoundTrip(t, transport, req); resp.StatusCode != http.StatusOK {
			t.Fatalf("HTTP/%d: got %d %s, want 200", c.protocol, resp.StatusCode, body)
		}
		got := seen.Load()
		header, trailer := got.Header.Values("X-Auth-Owner"), got.Trailer.Values("X-Auth-Owner")
		if !slices.Equal(header, []string{"ann"}) || !slices.Equal(trailer, c.want) {
			t.Errorf("HTTP/%d: the application received the owner %q, and %q in the trailer; want ann and %q",
				c.protocol, header, trailer, c.want)
		}
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
			t.Errorf("%s, %s: the application received %s: %q", c.path, name, header, values)
		}
	}
	if got := a.saw().Values("X-Auth-Owner"); c.path == "/" && !slices.Equal(got, []string{"bob"}) {
		t.Errorf("%s, %s: the application received the owner %q, want bob", c.path, name, got)
	}
}
