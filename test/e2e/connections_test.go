package e2e

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/extauthz/extauthz/test/testenv"
)

// TestConnections runs envoy/tcp.yaml unchanged, with the rules in envoy/rules.
func TestConnections(t *testing.T) {
	t.Parallel()
	service := startService(t, "RUNTIME_ROOT="+filepath.Join(testenv.RepoRoot(t), "envoy"), "RUNTIME_APPDIRECTORY=rules")
	application := newGreeter(t)
	envoy := startEnvoyWith(t, "envoy/tcp.yaml", testenv.Ports{8000: application.port, 8081: service.grpcPort})
	const elsewhere = "127.0.1.1"

	t.Run("an address that may connect", func(t *testing.T) {
		if got := envoy.talk(t, "127.0.0.2"); got != "hello ping" {
			t.Errorf("got %q, want %q", got, "hello ping")
		}
	})
	t.Run("an address that may not connect", func(t *testing.T) {
		before := application.connections.Load()
		if got := envoy.talk(t, elsewhere); got != "" {
			t.Errorf("got %q, want the connection closed without data", got)
		}
		if n := application.connections.Load() - before; n != 0 {
			t.Errorf("the application accepted %d connections, want 0", n)
		}
		envoy.wantStats(t, map[string]int{"ext_authz.ingress.denied": 1, "ext_authz.ingress.cx_closed": 1})
	})
	t.Run("Envoy calls ratelimit when the connection opens, ext_authz at the first bytes", func(t *testing.T) {
		before := envoy.Stat("ext_authz.ingress.total")
		conn := envoy.dial(t, elsewhere)
		defer func() { _ = conn.Close() }()
		testenv.Eventually(t, func() error {
			if got := envoy.Stat("ratelimit.ingress.ok"); got != 3 {
				return fmt.Errorf("ratelimit.ingress.ok is %d, want 3", got)
			}
			return nil
		}, "the call of ratelimit")
		envoy.wantStats(t, map[string]int{"ext_authz.ingress.total": before})
	})
	t.Run("too many connections", func(t *testing.T) {
		const busy = "127.0.0.3"
		for i := range 10 {
			if got := envoy.talk(t, busy); got != "hello ping" {
				t.Fatalf("connection %d: got %q, want %q", i+1, got, "hello ping")
			}
		}
		before := application.connections.Load()
		if got := envoy.talk(t, busy); got != "" {
			t.Errorf("the eleventh: got %q, want the connection closed", got)
		}
		if n := application.connections.Load() - before; n != 0 {
			t.Errorf("the application accepted %d connections, want 0", n)
		}
		envoy.wantStats(t, map[string]int{"ratelimit.ingress.over_limit": 1, "ratelimit.ingress.cx_closed": 1})
		if got := envoy.talk(t, "127.0.0.4"); got != "hello ping" {
			t.Errorf("another address: got %q, want %q", got, "hello ping")
		}
	})
	if err := service.Terminate(); err != nil {
		t.Fatal(err)
	}
	t.Run("the service is unavailable: ratelimit allows, ext_authz closes", func(t *testing.T) {
		if got := envoy.talk(t, "127.0.0.2"); got != "" {
			t.Errorf("got %q, want the connection closed", got)
		}
		envoy.wantStats(t, map[string]int{"ratelimit.ingress.failure_mode_allowed": 1, "ext_authz.ingress.error": 1})
	})
}

// TestConnectionsWithoutRedis has no Redis and STORE_ERROR_POLICY=allow. Denied addresses are still denied; all other
// addresses are allowed.
func TestConnectionsWithoutRedis(t *testing.T) {
	t.Parallel()
	service := startService(t, "RUNTIME_ROOT="+filepath.Join(testenv.RepoRoot(t), "envoy"), "RUNTIME_APPDIRECTORY=rules",
		"REDIS_URL="+testenv.Loopback(testenv.FreePort(t)), "STORE_ERROR_POLICY=allow")
	envoy := startEnvoyWith(t, "envoy/tcp.yaml", testenv.Ports{8000: newGreeter(t).port, 8081: service.grpcPort})
	for from, want := range map[string]string{"127.0.0.2": "hello ping", "127.0.1.1": ""} {
		if got := envoy.talk(t, from); got != want {
			t.Errorf("from %s: got %q, want %q", from, got, want)
		}
	}
}

// TestConnectionsByPrincipal identifies clients by certificate, with the policy of docs/ext_authz.md.
func TestConnectionsByPrincipal(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	root, _ := rulesDirectory(t, block(t, "docs/ext_authz.md", "yaml", "domain: connections"))
	service := startService(t, "RUNTIME_ROOT="+root)
	envoy := startEnvoyWith(t, "envoy/tcp.yaml", testenv.Ports{8000: newGreeter(t).port, 8081: service.grpcPort},
		ca.listener(t))
	for _, c := range []struct {
		name         string
		certificates []tls.Certificate
		want         string
	}{
		{"a listed workload", []tls.Certificate{ca.issue(t, "spiffe://example.org/ns/shop/sa/web")}, "hello ping"},
		{"an unlisted workload", []tls.Certificate{ca.issue(t, "spiffe://example.org/ns/shop/sa/batch")}, ""},
		{"no certificate", nil, ""},
		{"the listed workload again", []tls.Certificate{ca.issue(t, "spiffe://example.org/ns/shop/sa/web")}, "hello ping"},
		{"the listed workload over its limit", []tls.Certificate{ca.issue(t, "spiffe://example.org/ns/shop/sa/web")}, ""},
		{"another listed workload", []tls.Certificate{ca.issue(t, "spiffe://example.org/ns/bank/sa/web")}, "hello ping"},
	} {
		client := &proxy{EnvoyProxy: envoy.EnvoyProxy, addr: envoy.addr,
			tls: &tls.Config{RootCAs: ca.Pool, Certificates: c.certificates, ServerName: "127.0.0.1"}}
		if got := client.talk(t, "127.0.0.1"); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

// greeter is an application that sends a greeting first and then echoes what it receives.
type greeter struct {
	port        int
	connections atomic.Int64
}

func newGreeter(t *testing.T) *greeter {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	g := &greeter{port: testenv.Port(t, l.Addr().String())}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test has ended
			}
			g.connections.Add(1)
			go func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.WriteString(conn, "hello ")
				_, _ = io.Copy(conn, conn) // until the client closes
			}()
		}
	}()
	return g
}

// dial opens a connection to Envoy from an address of this machine.
func (p *proxy) dial(t *testing.T, from string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if p.tls != nil {
		return tls.Client(conn, p.tls)
	}
	return conn
}

// talk sends a line on a new connection from an address. It returns the data received until the end of a line or of the
// connection.
func (p *proxy) talk(t *testing.T, from string) string {
	t.Helper()
	conn := p.dial(t, from)
	defer func() { _ = conn.Close() }()
	_, err := io.WriteString(conn, "ping\n")
	received, readErr := bufio.NewReader(conn).ReadString('\n')
	if err = errors.Join(err, readErr); err == nil {
		return received[:len(received)-1]
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Fatalf("received %q, then: %v; want an answer, or the end of the connection", received, err)
	}
	return received
}

// wantStats checks counters of Envoy.
func (p *proxy) wantStats(t *testing.T, want map[string]int) {
	t.Helper()
	for name, n := range want {
		if got := p.Stat(name); got != n {
			t.Errorf("%s: got %d, want %d", name, got, n)
		}
	}
}
