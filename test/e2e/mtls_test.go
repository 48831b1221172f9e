package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestMTLS lets the certificate of a client say who it is. Envoy has verified it; a header that claims as much means nothing.
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
		return &proxy{EnvoyProxy: envoy.EnvoyProxy, addr: envoy.addr, tls: &tls.Config{RootCAs: ca.pool, Certificates: certificates}}
	}
	const web = "spiffe://example.org/ns/shop/sa/web"
	for _, c := range []struct {
		name   string
		client *proxy
		status int
	}{
		{"a workload that is named", with(ca.issue(t, web)), http.StatusOK},
		{"one that is not", with(ca.issue(t, "spiffe://example.org/ns/shop/sa/batch")), http.StatusForbidden},
		{"one of another trust domain", with(ca.issue(t, "spiffe://evil.example/spiffe://example.org/ns/x/sa/web")), http.StatusForbidden},
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

// authority makes certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pool        *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{key: newECKey(t), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate = parse(t, sign(t, template, template, a.key, a.key))
	a.pool.AddCert(a.certificate)
	return a
}

// issue makes a certificate with a URI for its name, also good for a server on loopback.
func (a *authority) issue(t *testing.T, uri string) tls.Certificate {
	t.Helper()
	name, err := url.Parse(uri)
	if err != nil {
		t.Fatal(err)
	}
	key := newECKey(t)
	der := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "somebody"}, NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.certificate, key, a.key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listener has Envoy speak TLS, and ask clients for a certificate of this authority without insisting on one.
func (a *authority) listener(t *testing.T) edit {
	t.Helper()
	dir, certificate := t.TempDir(), a.issue(t, "spiffe://example.org/envoy")
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return instead("        - filters:\n", fmt.Sprintf(`        - transport_socket:
            name: envoy.transport_sockets.tls
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
              require_client_certificate: false
              common_tls_context:
                tls_certificates: [{ certificate_chain: { filename: %q }, private_key: { filename: %q } }]
                validation_context: { trusted_ca: { filename: %q } }
          filters:
`, file("cert.pem", "CERTIFICATE", certificate.Certificate[0]), file("key.pem", "PRIVATE KEY", key), file("ca.pem", "CERTIFICATE", a.certificate.Raw)))
}

func newECKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func parse(t *testing.T, der []byte) *x509.Certificate {
	t.Helper()
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
