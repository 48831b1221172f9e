package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// certificates is a directory with certificates of the service and of Envoy.
type certificates struct {
	dir string
	ca  *testenv.Authority
}

const tlsName = "spiffe://example.org/extauthz"

func newCertificates(t *testing.T) *certificates {
	t.Helper()
	c := &certificates{dir: t.TempDir(), ca: testenv.NewAuthority(t)}
	c.ca.Write(t, c.file("ca.crt"))
	c.renew(t, c.ca, time.Hour)
	testenv.WriteCertificate(t, c.ca.Issue(t, "spiffe://example.org/envoy", time.Hour), c.file("envoy.crt"),
		c.file("envoy.key"))
	return c
}

// renew replaces the certificate of the service.
func (c *certificates) renew(t *testing.T, ca *testenv.Authority, valid time.Duration) {
	t.Helper()
	testenv.WriteCertificate(t, ca.Issue(t, tlsName, valid), c.file("tls.crt"), c.file("tls.key"))
}

func (c *certificates) file(name string) string { return filepath.Join(c.dir, name) }

// service starts the service with mTLS.
func (c *certificates) service(t *testing.T, environment ...string) *service {
	t.Helper()
	root, _ := rulesDirectory(t, "domain: sample\nauthz: {anonymous: allow}\n"+
		"descriptors: [{key: masked_remote_address, rate_limit: {unit: hour, requests_per_unit: 1000000}}]\n")
	return startService(t, append(append(environment, "RUNTIME_ROOT="+root), c.settings()...)...)
}

// settings are those of a service with mTLS.
func (c *certificates) settings() []string {
	return []string{
		"GRPC_SERVER_USE_TLS=true", "GRPC_SERVER_TLS_CERT=" + c.file("tls.crt"), "GRPC_SERVER_TLS_KEY=" + c.file("tls.key"),
		"GRPC_CLIENT_TLS_CACERT=" + c.file("ca.crt"), "GRPC_CLIENT_TLS_SAN=spiffe://example.org/envoy",
	}
}

// upstream adds what docs/tls.md shows to the cluster of the service.
func (c *certificates) upstream(t *testing.T, edits ...edit) edit {
	t.Helper()
	part := strings.ReplaceAll(block(t, "docs/tls.md", "yaml", "UpstreamTlsContext"), "/certs/", c.dir+"/")
	for _, e := range edits {
		part = e(t, part)
	}
	return instead("      load_assignment:\n        cluster_name: extauthz\n",
		part+"      load_assignment:\n        cluster_name: extauthz\n")
}

func tlsVersion(version string) edit {
	return instead("            alpn_protocols: [h2]\n", fmt.Sprintf("            alpn_protocols: [h2]\n"+
		"            tls_params: { tls_minimum_protocol_version: %s, tls_maximum_protocol_version: %[1]s }\n", version))
}

// TestTLSUpstream calls the service through Envoys with the configuration of docs/tls.md, and with mistakes in it.
func TestTLSUpstream(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	s := c.service(t)
	for _, version := range []string{"TLSv1_2", "TLSv1_3"} {
		envoy := startEnvoy(t, s.grpcPort, c.upstream(t, tlsVersion(version)))
		if a := envoy.do(t, get("/")); a.status != http.StatusOK {
			t.Errorf("%s: got %d %s, want 200", version, a.status, a.body)
		}
		envoy.checkNoFailures(t)
		if n := envoy.Stat("cluster.extauthz.ssl.versions." + strings.ReplaceAll(version, "_", ".")); n == 0 {
			t.Errorf("%s: no connection has this version", version)
		}
	}
	for _, m := range []struct {
		name, result string
		change       edit
	}{
		{"another name of the service", "refused_by_client",
			instead(`"`+tlsName+`"`, `"spiffe://example.org/other"`)},
		{"no certificate of Envoy", "client_certificate", func(t *testing.T, part string) string {
			t.Helper()
			before, rest, _ := strings.Cut(part, "            tls_certificates:\n")
			_, after, found := strings.Cut(rest, "            validation_context:\n")
			if !found {
				t.Fatalf("no tls_certificates in\n%s", part)
			}
			return before + "            validation_context:\n" + after
		}},
		{"the certificate of the service as Envoy's", "client_certificate", func(_ *testing.T, part string) string {
			return strings.NewReplacer("envoy.crt", "tls.crt", "envoy.key", "tls.key").Replace(part)
		}},
	} {
		metric := fmt.Sprintf("extauthz_tls_handshakes_total{result=%q}", m.result)
		before := s.metric(t, metric)
		envoy := startEnvoy(t, s.grpcPort, c.upstream(t, m.change))
		if a := envoy.do(t, get("/")); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: got %d %s, want 503", m.name, a.status, a.body)
		}
		testenv.Eventually(t, func() error {
			if s.metric(t, metric) == before {
				return errors.New("no handshake has the result " + m.result)
			}
			return nil
		}, m.name)
	}
}

// TestTLSRenewal renews the certificate of the service while Envoy calls it and reconnects all the time. No call fails.
//
// Only the rate limit filter is used. With both, Envoy begins one call while it reads the answer to the other. It fails
// that call itself if a GOAWAY follows in what it has read.
func TestTLSRenewal(t *testing.T) {
	t.Parallel()
	c := newCertificates(t)
	s := c.service(t, "GRPC_MAX_CONNECTION_AGE=200ms")
	envoy := startEnvoy(t, s.grpcPort, c.upstream(t), without(extAuthz))
	stop := make(chan struct{})
	var clients sync.WaitGroup
	clients.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if a := envoy.do(t, get("/")); a.status != http.StatusOK {
				t.Errorf("got %d %s, want 200", a.status, a.body)
			}
		}
	})
	const handshakes = "cluster.extauthz.ssl.handshake"
	for i := range 5 {
		c.renew(t, c.ca, time.Duration(i+2)*time.Hour)
		before := envoy.Stat(handshakes)
		testenv.Eventually(t, func() error {
			if envoy.Stat(handshakes) < before+3 {
				return errors.New("not yet")
			}
			return nil
		}, "Envoy to connect again")
	}
	close(stop)
	clients.Wait()
	envoy.checkNoFailures(t)
	for _, failure := range []string{"ssl.connection_error", "ssl.fail_verify_error", "ssl.fail_verify_san",
		"upstream_cx_connect_fail"} {
		if n := envoy.Stat("cluster.extauthz." + failure); n != 0 {
			t.Errorf("%s: %d, want 0", failure, n)
		}
	}
}
