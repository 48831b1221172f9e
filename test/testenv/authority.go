package testenv

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// Authority makes certificates for a test.
type Authority struct {
	// Certificate is the authority's own, and Pool holds it.
	Certificate *x509.Certificate
	Pool        *x509.CertPool

	key *ecdsa.PrivateKey
}

// NewAuthority returns an authority with a new key.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{key: ECKey(t), Pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.Certificate = certify(t, template, template, a.key, a.key)
	a.Pool.AddCert(a.Certificate)
	return a
}

// Issue makes a certificate with one or more URIs or DNS names. It is also valid for a server on 127.0.0.1.
func (a *Authority) Issue(t testing.TB, name string, valid time.Duration, more ...string) tls.Certificate {
	t.Helper()
	var uris []*url.URL
	var hosts []string
	for _, text := range append([]string{name}, more...) {
		if !strings.Contains(text, ":") {
			hosts = append(hosts, text)
			continue
		}
		uri, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		uris = append(uris, uri)
	}
	key := ECKey(t)
	certificate := certify(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a client"}, NotAfter: time.Now().Add(valid),
		URIs: uris, DNSNames: hosts, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, a.Certificate, key, a.key)
	return tls.Certificate{Certificate: [][]byte{certificate.Raw}, PrivateKey: key, Leaf: certificate}
}

// WriteCertificate writes a certificate and its key to files.
func WriteCertificate(t testing.TB, certificate tls.Certificate, file, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, "PRIVATE KEY", der)
	writePEM(t, file, "CERTIFICATE", certificate.Certificate[0])
}

// Write writes the authority's own certificate to a file.
func (a *Authority) Write(t testing.TB, file string) {
	t.Helper()
	writePEM(t, file, "CERTIFICATE", a.Certificate.Raw)
}

func writePEM(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// ECKey makes a key on the curve P-256.
func ECKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certify(t testing.TB, template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate
}
