package service

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
	"github.com/extauthz/extauthz/test/testenv"
	"github.com/extauthz/extauthz/test/testenv/xdsserver"
)

// TestCertificateForRedis replaces a client certificate that Redis does not trust. The service then uses the new one
// without a restart, and its metric has the new expiry.
func TestCertificateForRedis(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	trusted, untrusted := testenv.NewAuthority(t), testenv.NewAuthority(t)
	trusted.Write(t, file("ca.pem"))
	testenv.WriteCertificate(t, trusted.Issue(t, "spiffe://example.org/redis", time.Hour), file("redis.pem"),
		file("redis.key"))
	port := testenv.FreePort(t)
	testenv.Redis(t, "--tls-port", strconv.Itoa(port),
		"--tls-cert-file", file("redis.pem"), "--tls-key-file", file("redis.key"), "--tls-ca-cert-file", file("ca.pem"))

	const name = "spiffe://example.org/extauthz"
	first, renewed := untrusted.Issue(t, name, time.Hour), trusted.Issue(t, name, 24*time.Hour)
	testenv.WriteCertificate(t, first, file("client.pem"), file("client.key"))
	_, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Redis.Main.URL = "rediss://" + testenv.Loopback(port)
		s.Redis.Main.Timeout = 10 * time.Second
		s.Redis.CACert = file("ca.pem")
		s.Redis.Cert = file("client.pem")
		s.Redis.Key = file("client.key")
	}))
	shows := func(up int, expiry time.Time) error {
		res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(rls.Example))
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		_, metrics := get(t, "http://"+debugAddr+"/metrics")
		for _, want := range []string{
			fmt.Sprintf("extauthz_store_up %d\n", up),
			fmt.Sprintf("extauthz_certificate_expiry_timestamp_seconds{certificate=\"redis_client\"} %g\n",
				float64(expiry.Unix())),
		} {
			if !strings.Contains(metrics, want) {
				return fmt.Errorf("no %s in\n%s", want, metrics)
			}
		}
		return nil
	}
	testenv.Eventually(t, func() error { return shows(0, first.Leaf.NotAfter) },
		"Redis to refuse a certificate that it does not trust")
	testenv.WriteCertificate(t, renewed, file("client.pem"), file("client.key"))
	testenv.Eventually(t, func() error { return shows(1, renewed.Leaf.NotAfter) },
		"Redis to take the one that was put in its place")
}

// TestAuthorityOfRedisIsReplaced: new connections to Redis trust only the authority that is now in the file.
func TestAuthorityOfRedisIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	trusted, other := testenv.NewAuthority(t), testenv.NewAuthority(t)
	trusted.Write(t, file("ca.pem"))
	testenv.WriteCertificate(t, trusted.Issue(t, "spiffe://example.org/redis", time.Hour), file("redis.pem"),
		file("redis.key"))
	port := testenv.FreePort(t)
	server := testenv.Redis(t, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", file("redis.pem"), "--tls-key-file", file("redis.key"), "--tls-ca-cert-file", file("ca.pem"))
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	defer admin.Close()
	_, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = testenv.RulesRoot(t)
		s.Redis.Main.URL = "rediss://" + testenv.Loopback(port)
		s.Redis.Main.Timeout = 10 * time.Second
		s.Redis.CACert = file("ca.pem")
	}))
	up := func(want string) {
		t.Helper()
		testenv.Eventually(t, func() error {
			if err := admin.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err(); err != nil {
				return err
			}
			res, err := http.Post("http://"+httpAddr+"/json", "application/json", strings.NewReader(rls.Example))
			if err != nil {
				return err
			}
			_ = res.Body.Close()
			if _, metrics := get(t, "http://"+debugAddr+"/metrics"); !strings.Contains(metrics, "extauthz_store_up "+want+"\n") {
				return errors.New("it is not")
			}
			return nil
		}, "extauthz_store_up "+want)
	}
	up("1")
	other.Write(t, file("ca.pem"))
	up("0")
	trusted.Write(t, file("ca.pem"))
	up("1")
}

// TestBrokenCertificates breaks the files of each certificate and authority in turn. The log names the setting, the
// metric is 0 until the file is repaired, and the expiry is that of the certificate in use.
func TestBrokenCertificates(t *testing.T) {
	t.Parallel()
	dir, ca := t.TempDir(), testenv.NewAuthority(t)
	file := func(name string) string { return filepath.Join(dir, name) }
	ends := map[string]time.Time{}
	for i, name := range []string{"redis", "grpc_server", "redis_client", "xds_client"} {
		c := ca.Issue(t, "spiffe://example.org/"+name, time.Duration(i+2)*time.Hour)
		testenv.WriteCertificate(t, c, file(name), file(name+".key"))
		ends[name] = c.Leaf.NotAfter
	}
	for _, name := range []string{"redis_ca", "grpc_client_ca", "xds_ca"} {
		ca.Write(t, file(name))
		ends[name] = ca.Certificate.NotAfter
	}
	port := testenv.FreePort(t)
	testenv.Redis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", file("redis"), "--tls-key-file",
		file("redis.key"), "--tls-ca-cert-file", file("redis_ca"))
	server := xdsserver.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "localhost", time.Hour)},
	})))
	_, _, debugAddr, out := start(t, configured(func(s *settings.Settings) {
		s.TLS.Use = true
		s.TLS.Cert = file("grpc_server")
		s.TLS.Key = file("grpc_server.key")
		s.TLS.ClientCA = file("grpc_client_ca")
		s.Redis.Main.URL = "rediss://" + testenv.Loopback(port)
		s.Redis.CACert = file("redis_ca")
		s.Redis.UsePerSecond = true
		s.Redis.PerSecond.URL = "rediss://" + testenv.Loopback(port)
		s.Redis.Cert = file("redis_client")
		s.Redis.Key = file("redis_client.key")
		s.Rules.ConfigType = "GRPC_XDS_SOTW"
		s.XDS.Server = server.Addr
		s.Rules.ForceStart = true
		s.XDS.UseTLS = true
		s.XDS.CACert = file("xds_ca")
		s.XDS.Cert = file("xds_client")
		s.XDS.Key = file("xds_client.key")
	}))
	shows := func(name, usable string) {
		t.Helper()
		_, metrics := get(t, "http://"+debugAddr+"/metrics")
		for _, want := range []string{
			fmt.Sprintf("extauthz_certificate_last_reload_successful{certificate=%q} %s\n", name, usable),
			fmt.Sprintf("extauthz_certificate_expiry_timestamp_seconds{certificate=%q} %g\n", name,
				float64(ends[name].Unix())),
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("no %s in\n%s", want, metrics)
			}
		}
	}
	for name, setting := range certificateSettings {
		good, err := os.ReadFile(file(name))
		if err != nil {
			t.Fatal(err)
		}
		for _, state := range []struct{ content, usable, line string }{
			{string(good), "1", ""},
			{"-----BEGIN CERTIFICATE-----\nMII", "0", `msg="certificates in changed files cannot be used; the previous ` +
				`ones stay in use" setting=` + setting + " "},
			{string(good), "1", `msg="certificates were read again" setting=` + setting + "\n"},
		} {
			if err := os.WriteFile(file(name), []byte(state.content), 0o600); err != nil {
				t.Fatal(err)
			}
			shows(name, state.usable)
			if n := strings.Count(logged(t, out, state.line), state.line); state.line != "" && n != 1 {
				t.Errorf("%d lines, want one with %s in\n%s", n, state.line, out)
			}
		}
	}
}
