package service

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

const envoyID, serviceID = "spiffe://example.org/envoy", "spiffe://example.org/extauthz"

// secured is a service with TLS, in a directory with its certificates.
type secured struct {
	dir               string
	ca                *testenv.Authority // of the service and of its clients
	grpc, http, debug string
	out               *testenv.Output
}

// startSecured starts a service that demands client certificates with the name envoyID.
func startSecured(t *testing.T, changes ...func(*settings.Settings)) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir(), ca: testenv.NewAuthority(t)}
	s.ca.Write(t, s.file("ca.pem"))
	testenv.WriteCertificate(t, s.ca.Issue(t, serviceID, time.Hour), s.file("cert.pem"), s.file("key.pem"))
	s.grpc, s.http, s.debug, s.out = start(t, configured(append([]func(*settings.Settings){s.configure(t)},
		changes...)...))
	return s
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

func (s *secured) configure(t *testing.T) func(*settings.Settings) {
	t.Helper()
	return func(to *settings.Settings) {
		to.Rules.Root = testenv.RulesRoot(t)
		to.TLS = settings.TLS{
			Use: true, Cert: s.file("cert.pem"), Key: s.file("key.pem"), ClientCA: s.file("ca.pem"), ClientSAN: envoyID,
		}
	}
}

// client returns the TLS of a client with this certificate.
func (s *secured) client(certificates ...tls.Certificate) *tls.Config {
	return &tls.Config{RootCAs: s.ca.Pool, Certificates: certificates}
}

// check asks the service for its health on a new connection.
func (s *secured) check(ctx context.Context, with credentials.TransportCredentials) error {
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(with))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, new(grpc_health_v1.HealthCheckRequest))
	return err
}

// shows returns nil if a metric has a value.
func (s *secured) shows(t *testing.T, metric, value string) error {
	t.Helper()
	_, metrics := get(t, "http://"+s.debug+"/metrics")
	_, rest, found := strings.Cut(metrics, "\n"+metric+" ")
	got, _, _ := strings.Cut(rest, "\n")
	if !found || got != value {
		return fmt.Errorf("%s %s in\n%s", metric, got, metrics)
	}
	return nil
}

// TestTLSClients connects clients that may call the service, and others. The metric and the log have the reason.
func TestTLSClients(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	other := testenv.NewAuthority(t)
	envoy := s.ca.Issue(t, envoyID, time.Hour)
	version := func(v uint16) *tls.Config {
		cfg := s.client(envoy)
		cfg.MinVersion, cfg.MaxVersion = v, v
		return cfg
	}
	for _, c := range []struct {
		name   string
		client credentials.TransportCredentials
		result string
	}{
		{"TLS 1.2", credentials.NewTLS(version(tls.VersionTLS12)), "ok"},
		{"TLS 1.3", credentials.NewTLS(version(tls.VersionTLS13)), "ok"},
		{"one of several names", credentials.NewTLS(s.client(s.ca.Issue(t, serviceID, time.Hour, envoyID))), "ok"},
		{"TLS 1.1", credentials.NewTLS(version(tls.VersionTLS11)), "other"},
		{"another name", credentials.NewTLS(s.client(s.ca.Issue(t, serviceID, time.Hour))), "client_certificate"},
		{"a name that continues", credentials.NewTLS(s.client(s.ca.Issue(t, envoyID+"/x", time.Hour))),
			"client_certificate"},
		{"another authority", credentials.NewTLS(s.client(other.Issue(t, envoyID, time.Hour))), "client_certificate"},
		{"an expired certificate", credentials.NewTLS(s.client(s.ca.Issue(t, envoyID, -time.Minute))),
			"client_certificate"},
		{"no certificate", credentials.NewTLS(s.client()), "client_certificate"},
		{"a client that trusts another authority", credentials.NewTLS(&tls.Config{RootCAs: other.Pool,
			Certificates: []tls.Certificate{envoy}}), "refused_by_client"},
		{"plaintext", insecure.NewCredentials(), "not_tls"},
	} {
		before := s.count(t, c.result)
		if err := s.check(t.Context(), c.client); (err == nil) != (c.result == "ok") {
			t.Errorf("%s: %v, want the result %s", c.name, err, c.result)
		}
		s.counts(t, c.name, c.result, before)
	}
	// What grpc-go does not send.
	for _, c := range []struct {
		name, result string
		protocols    []string
		certificates int
	}{
		{"no ALPN", "other", nil, 1},
		{"HTTP/1.1", "other", []string{"http/1.1"}, 1},
		{"a chain of more than 64 KiB", "other", []string{"h2"}, 200},
	} {
		before := s.count(t, c.result)
		chain := envoy
		for range c.certificates - 1 {
			chain.Certificate = append(chain.Certificate, envoy.Certificate[0])
		}
		cfg := s.client(chain)
		cfg.NextProtos = c.protocols
		if conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", s.grpc); err == nil {
			if _, err = io.ReadAll(conn); err == nil { // of the alert; in TLS 1.3 the client is done before the server
				t.Errorf("%s: the connection ended without an alert", c.name)
			}
			_ = conn.Close()
		}
		s.counts(t, c.name, c.result, before)
	}
	for _, want := range []string{"reason=client_certificate", "reason=refused_by_client", "reason=not_tls",
		"reason=other"} {
		if n := strings.Count(logged(t, s.out, want), want); n != 1 {
			t.Errorf("%d lines with %s, want 1 in\n%s", n, want, s.out)
		}
	}
}

// counts waits until more handshakes than before have a result. The service counts one after the client knows of it.
func (s *secured) counts(t *testing.T, what, result string, before int) {
	t.Helper()
	testenv.Eventually(t, func() error {
		if s.count(t, result) == before {
			return errors.New("no more handshakes with the result " + result)
		}
		return nil
	}, what)
}

// count returns how many handshakes had a result.
func (s *secured) count(t *testing.T, result string) (n int) {
	t.Helper()
	_, metrics := get(t, "http://"+s.debug+"/metrics")
	_, rest, _ := strings.Cut(metrics, fmt.Sprintf("\nextauthz_tls_handshakes_total{result=%q} ", result))
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v in\n%s", result, err, metrics)
	}
	return n
}

// TestClientNames: GRPC_CLIENT_TLS_SAN is a URI, a DNS name or an IP address.
func TestClientNames(t *testing.T) {
	t.Parallel()
	cert := testenv.NewAuthority(t).Issue(t, envoyID, time.Hour, "envoy.example.org", "*.mesh.example").Leaf
	for name, want := range map[string]bool{
		envoyID: true, "envoy.example.org": true, "ENVOY.example.org": true, "a.mesh.example": true, "127.0.0.1": true,
		"spiffe://example.org/": false, "example.org": false, "a.b.mesh.example": false, "127.0.0.2": false, "*": false,
		"a client": false, // its common name
	} {
		if got := hasName(cert, name); got != want {
			t.Errorf("%s: %t, want %t", name, got, want)
		}
	}
}

// TestCertificatesAreRenewedUnderTraffic renews the certificates of the service and of its clients, file by file, and
// breaks them, while clients call it on old and new connections. No call may fail.
func TestCertificatesAreRenewedUnderTraffic(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	second := testenv.NewAuthority(t)
	both := s.ca.Pool.Clone()
	both.AddCert(second.Certificate)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var clients sync.WaitGroup
	var calls [2]atomic.Int64 // on new connections, and on an old one
	with := credentials.NewTLS(&tls.Config{RootCAs: both,
		Certificates: []tls.Certificate{s.ca.Issue(t, envoyID, time.Hour)}})
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(with))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	old := grpc_health_v1.NewHealthClient(conn)
	for i, call := range []func() error{
		func() error { return s.check(t.Context(), with) },
		func() error { _, err := old.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest)); return err },
	} {
		clients.Go(func() {
			for ctx.Err() == nil {
				if err := call(); err != nil {
					t.Errorf("client %d: %v", i, err)
				}
				calls[i].Add(1)
			}
		})
	}
	shown := &tls.Config{RootCAs: both, NextProtos: []string{"h2"},
		Certificates: []tls.Certificate{s.ca.Issue(t, envoyID, time.Hour)}}
	serves := func(want tls.Certificate) {
		t.Helper()
		testenv.Eventually(t, func() error { // a handshake at the same time may be the one that reads the files
			conn, err := (&tls.Dialer{Config: shown}).DialContext(t.Context(), "tcp", s.grpc)
			if err != nil {
				return err
			}
			defer conn.Close()
			if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0]; !got.Equal(want.Leaf) {
				return fmt.Errorf("the service shows the certificate that ends at %v, want the one of %v", got.NotAfter,
					want.Leaf.NotAfter)
			}
			return nil
		}, "the certificate of the files")
	}
	eventually := func(metric, value string) {
		t.Helper()
		testenv.Eventually(t, func() error { return s.shows(t, metric, value) }, metric)
	}
	const usable, of = "extauthz_certificate_last_reload_successful", `{certificate="grpc_server"}`
	var last tls.Certificate
	for i := range 5 {
		last = second.Issue(t, serviceID, time.Duration(i+2)*time.Hour)
		testenv.WriteCertificate(t, last, s.file("cert.pem"), s.file("key.pem")) // in place, the key first
		serves(last)
		before := calls[0].Load()
		testenv.Eventually(t, func() error {
			if calls[0].Load() < before+3 && !t.Failed() {
				return errors.New("too few")
			}
			return nil
		}, "calls on new connections")
	}
	if err := os.WriteFile(s.file("cert.pem"), []byte("-----BEGIN CERTIFICATE-----\nMII"), 0o600); err != nil {
		t.Fatal(err)
	}
	serves(last)
	eventually(usable+of, "0")
	last = s.ca.Issue(t, serviceID, 10*time.Hour)
	testenv.WriteCertificate(t, last, s.file("cert.pem"), s.file("key.pem"))
	serves(last)
	eventually(usable+of, "1")
	expiry := fmt.Sprintf("%g", float64(last.Leaf.NotAfter.Unix()))
	eventually("extauthz_certificate_expiry_timestamp_seconds"+of, expiry)
	stop()
	clients.Wait()
	logged(t, s.out, `msg="certificates in changed files cannot be used; the previous ones stay in use" `+
		`setting=GRPC_SERVER_TLS_CERT`)
}

// TestClientAuthorityIsReplaced: after the file of the authorities has changed, clients with certificates of the
// previous one can make no connection, also not by resuming a session. The connection that they have stays.
func TestClientAuthorityIsReplaced(t *testing.T) {
	t.Parallel()
	s := startSecured(t, nil)
	old := s.client(s.ca.Issue(t, envoyID, time.Hour))
	old.ClientSessionCache = tls.NewLRUClientSessionCache(10)
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(credentials.NewTLS(old)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := grpc_health_v1.NewHealthClient(conn)
	if _, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest)); err != nil {
		t.Fatal(err)
	}
	second := testenv.NewAuthority(t)
	second.Write(t, s.file("ca.pem"))
	if err := s.check(t.Context(), credentials.NewTLS(old)); err == nil {
		t.Error("a client with a certificate of the previous authority has connected")
	}
	if err := s.check(t.Context(), credentials.NewTLS(s.client(second.Issue(t, envoyID, time.Hour)))); err != nil {
		t.Error(err)
	}
	if _, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest)); err != nil {
		t.Errorf("the open connection: %v", err)
	}
}

// TestStalledHandshakes opens more connections than the listener may have, none of which finishes its handshake.
// Clients are answered meanwhile, and the stalled connections are closed.
func TestStalledHandshakes(t *testing.T) {
	t.Parallel()
	const most = 8
	s := startSecured(t, func(s *settings.Settings) { s.Listeners.MaxConnections = most })
	with := credentials.NewTLS(s.client(s.ca.Issue(t, envoyID, time.Hour)))
	attacker := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	var stalled []net.Conn
	for i := range 5 * most {
		conn, err := attacker.DialContext(t.Context(), "tcp", s.grpc)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if i%2 == 0 {
			_, err = conn.Write([]byte{22, 3, 1, 2, 0, 1}) // the beginning of a ClientHello
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Log(err) // the service has closed it already
		}
		stalled = append(stalled, conn)
		if i%most == 0 {
			if err := s.check(t.Context(), with); err != nil {
				t.Errorf("with %d stalled connections: %v", i, err)
			}
		}
	}
	for i, conn := range stalled {
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if s.count(t, "timeout") == 0 {
		t.Error("no handshake was ended for its time")
	}
}

// TestTLSOnASocket serves TLS on a Unix socket, and extauthz health probes it with the settings of the service.
func TestTLSOnASocket(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "grpc.sock")
	onSocket := func(s *settings.Settings) { s.Listeners.GRPCUDS, s.TLS.ClientSAN = socket, "" }
	s := startSecured(t, onSocket)
	env := configured(s.configure(t), onSocket)
	if code, _, stderr := runProgram(t, env, "", "health", "--timeout=1m"); code != exitOK {
		t.Errorf("health: exit code %d\n%s", code, stderr)
	}
	env.TLS.ClientCA = ""
	code, _, stderr := runProgram(t, env, "", "health", "--timeout=1m")
	if code != exitFailed {
		t.Errorf("health without a certificate: exit code %d\n%s", code, stderr)
	}
}

// TestTLSFilesAtTheStart checks that the service does not start without its certificates.
func TestTLSFilesAtTheStart(t *testing.T) {
	t.Parallel()
	s := &secured{dir: t.TempDir(), ca: testenv.NewAuthority(t)}
	s.ca.Write(t, s.file("ca.pem"))
	testenv.WriteCertificate(t, s.ca.Issue(t, serviceID, time.Hour), s.file("cert.pem"), s.file("key.pem"))
	for setting, c := range map[string]struct {
		change func(*settings.TLS)
		want   string
	}{
		"GRPC_SERVER_TLS_CERT": {func(to *settings.TLS) { to.Cert = s.file("none.pem") },
			"GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: open " + s.file("none.pem")},
		"GRPC_SERVER_TLS_KEY": {func(to *settings.TLS) { to.Key = s.file("none.pem") },
			"GRPC_SERVER_TLS_CERT and GRPC_SERVER_TLS_KEY: open " + s.file("none.pem")},
		"GRPC_CLIENT_TLS_CACERT": {func(to *settings.TLS) { to.ClientCA = s.file("none.pem") },
			"GRPC_CLIENT_TLS_CACERT: open " + s.file("none.pem")},
	} {
		env, want := configured(s.configure(t)), c.want
		c.change(&env.TLS)
		code, _, stderr := runProgram(t, env, "")
		if code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", setting, code, want, stderr)
		}
	}
}
