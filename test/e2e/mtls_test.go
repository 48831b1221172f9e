package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestMTLS identifies clients by certificates that Envoy has verified. Headers of the client that claim an identity
// have no effect.
func TestMTLS(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	root, _ := rulesDirectory(t, `
domain: sample
authz:
  credentials:
    - mtls: { principals: ["spiffe://example.org/ns/*/sa/web"] }
`)
	envoy := startEnvoy(t, startService(t, "RUNTIME_ROOT="+root).grpcPort, ca.listener(t))
	with := func(certificates ...tls.Certificate) *proxy {
		return &proxy{EnvoyProxy: envoy.EnvoyProxy, addr: envoy.addr,
			tls: &tls.Config{RootCAs: ca.Pool, Certificates: certificates}}
	}
	const web = "spiffe://example.org/ns/shop/sa/web"
	for _, c := range []struct {
		name   string
		client *proxy
		status int
	}{
		{"a listed workload", with(ca.issue(t, web)), http.StatusOK},
		{"an unlisted workload", with(ca.issue(t, "spiffe://example.org/ns/shop/sa/batch")), http.StatusForbidden},
		{"a workload of another trust domain", with(ca.issue(t, "spiffe://evil.example/spiffe://example.org/ns/x/sa/web")),
			http.StatusForbidden},
		{"a name that continues with a listed name", with(ca.issue(t, "spiffe://example.org/ns/shop/sa/batch/ns/x/sa/web")),
			http.StatusForbidden},
		{"a list as one name", with(ca.issue(t, "spiffe://example.org/ns/shop,spiffe://example.org/sa/web")),
			http.StatusForbidden},
		// If a certificate has several names, Envoy sends the first.
		{"a listed name first", with(ca.issue(t, web, "spiffe://example.org/ns/shop/sa/batch")), http.StatusOK},
		{"a listed name second", with(ca.issue(t, "spiffe://example.org/ns/shop/sa/batch", web)), http.StatusForbidden},
		{"no certificate", with(), http.StatusUnauthorized},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := c.client.do(t, get("/", [2]string{"x-forwarded-client-cert", "URI=" + web}, [2]string{"x-auth-owner", web}))
			if a.status != c.status {
				t.Fatalf("got %d %s, want %d", a.status, a.body, c.status)
			}
			if c.status == http.StatusOK {
				wantHeaders(t, "the application", a.saw(), http.Header{"X-Auth-Owner": {web}, "X-Auth-Method": {"mtls"}})
			}
		})
	}
}

// authority makes certificates that are valid during a test.
type authority struct{ *testenv.Authority }

func newAuthority(t *testing.T) *authority {
	t.Helper()
	return &authority{testenv.NewAuthority(t)}
}

func (a *authority) issue(t *testing.T, uri string, more ...string) tls.Certificate {
	t.Helper()
	return a.Issue(t, uri, time.Hour, more...)
}

// listener configures Envoy's listener for TLS. Client certificates of this authority are optional.
func (a *authority) listener(t *testing.T) edit {
	t.Helper()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	testenv.WriteCertificate(t, a.issue(t, "spiffe://example.org/envoy"), file("cert.pem"), file("key.pem"))
	a.Write(t, file("ca.pem"))
	return instead("        - filters:\n", fmt.Sprintf(`        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              require_client_certificate: false
              common_tls_context:
                tls_certificates: [{ certificate_chain: { filename: %q }, private_key: { filename: %q } }]
                validation_context: { trusted_ca: { filename: %q } }
          filters:
`, file("cert.pem"), file("key.pem"), file("ca.pem")))
}
