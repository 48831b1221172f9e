package service

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/testenv"
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
