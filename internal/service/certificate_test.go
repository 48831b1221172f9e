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

	"github.com/extauthz/extauthz/internal/testenv"
	"github.com/extauthz/extauthz/internal/testenv/xdsserver"
	"github.com/extauthz/extauthz/pkg/envoy/rls"
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
	_, httpAddr, debugAddr, _ := start(t, Environment{
		"RUNTIME_ROOT": testenv.RulesRoot(t),
		"REDIS_URL":    "rediss://" + testenv.Loopback(port), "REDIS_TIMEOUT": "10s", "REDIS_TLS_CACERT": file("ca.pem"),
		"REDIS_TLS_CLIENT_CERT": file("client.pem"), "REDIS_TLS_CLIENT_KEY": file("client.key"),
	})
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
	_, httpAddr, debugAddr, _ := start(t, Environment{
		"RUNTIME_ROOT": testenv.RulesRoot(t), "REDIS_URL": "rediss://" + testenv.Loopback(port), "REDIS_TIMEOUT": "10s",
		"REDIS_TLS_CACERT": file("ca.pem"),
	})
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
		ends[name] = ca.NotAfter()
	}
	port := testenv.FreePort(t)
	testenv.Redis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", file("redis"), "--tls-key-file",
		file("redis.key"), "--tls-ca-cert-file", file("redis_ca"))
	server := xdsserver.Start(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t, "localhost", time.Hour)},
	})))
	_, _, debugAddr, out := start(t, Environment{
		"GRPC_SERVER_USE_TLS": "true", "GRPC_SERVER_TLS_CERT": file("grpc_server"),
		"GRPC_SERVER_TLS_KEY": file("grpc_server.key"), "GRPC_CLIENT_TLS_CACERT": file("grpc_client_ca"),
		"REDIS_URL": "rediss://" + testenv.Loopback(port), "REDIS_TLS_CACERT": file("redis_ca"),
		"REDIS_PERSECOND": "true", "REDIS_PERSECOND_URL": "rediss://" + testenv.Loopback(port),
		"REDIS_TLS_CLIENT_CERT": file("redis_client"), "REDIS_TLS_CLIENT_KEY": file("redis_client.key"),
		"CONFIG_TYPE": "GRPC_XDS_SOTW", "CONFIG_GRPC_XDS_SERVER_URL": server.Addr,
		"FORCE_START_WITHOUT_INITIAL_CONFIG": "true",
		"CONFIG_GRPC_XDS_SERVER_USE_TLS":     "true", "CONFIG_GRPC_XDS_SERVER_TLS_CACERT": file("xds_ca"),
		"CONFIG_GRPC_XDS_CLIENT_TLS_CERT": file("xds_client"), "CONFIG_GRPC_XDS_CLIENT_TLS_KEY": file("xds_client.key"),
	})
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
			if n := strings.Count(out.String(), state.line); state.line != "" && n != 1 {
				t.Errorf("%d lines, want one with %s in\n%s", n, state.line, out)
			}
		}
	}
}
