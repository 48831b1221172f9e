package service

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/extauthz/extauthz/internal/settings"
	"github.com/extauthz/extauthz/test/testenv"
)

var update = flag.Bool("update", false, "write the table of docs/reference/metrics.md")

// TestReference compares docs/reference/metrics.md with the metrics of a service that uses all its parts. `make
// reference` writes the page.
func TestReference(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority, port := testenv.NewAuthority(t), testenv.FreePort(t)
	authority.Write(t, file("ca.pem"))
	testenv.WriteCertificate(t, authority.Issue(t, "spiffe://example.org/test", time.Hour), file("cert.pem"),
		file("cert.key"))
	testenv.Redis(t, "--tls-port", strconv.Itoa(port),
		"--tls-cert-file", file("cert.pem"), "--tls-key-file", file("cert.key"), "--tls-ca-cert-file", file("ca.pem"))
	root := testenv.RulesRoot(t)
	rules := fmt.Sprintf(`
domain: shop
descriptors:
  - {key: owner, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: owner, value: a, descriptors: [{key: path, rate_limit: {unit: minute, requests_per_unit: 1}}]}
  - {key: user, rate_limit: {algorithm: concurrency, requests_per_unit: 1, on_store_error: deny, hold: {ttl: 10m}}}
authz:
  credentials:
    - jwt: {issuer: https://issuer.example, audiences: [shop], algorithms: [ES256], jwks_file: %q}
    - opaque_token: {header: x-token, introspection_url: http://127.0.0.1:1/, client_id: a, client_secret_file: absent}
  limits: [{actions: [{credential: {field: owner}}]}]
`, filepath.Join(testenv.RepoRoot(t), "test/observability/testdata/jwks.json"))
	if err := os.WriteFile(filepath.Join(root, "config", "rules.yaml"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	grpcAddr, httpAddr, debugAddr, _ := start(t, configured(func(s *settings.Settings) {
		s.Rules.Root = root
		s.Keys.Secret = "a-server-secret-of-a-test"
		s.Redis.Main.URL = "rediss://" + testenv.Loopback(port)
		s.Redis.CACert = file("ca.pem")
		s.Redis.Cert = file("cert.pem")
		s.Redis.Key = file("cert.key")
		s.TLS.Use = true
		s.TLS.Cert = file("cert.pem")
		s.TLS.Key = file("cert.key")
		s.TLS.ClientCA = file("ca.pem")
	}))
	send(t, grpcAddr, []string{"shop 1 owner=a path=b"})
	var metrics string
	testenv.Eventually(t, func() error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+httpAddr+"/check/", http.NoBody)
		if err != nil {
			return err
		}
		req.Header.Set("x-token", "opaque")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		_ = res.Body.Close()
		_, metrics = get(t, "http://"+debugAddr+"/metrics")
		for _, late := range []string{
			"extauthz_jwks_last_success_timestamp_seconds", "extauthz_request_duration_seconds",
			"extauthz_introspection_calls_total",
		} {
			if !strings.Contains(metrics, late) {
				return fmt.Errorf("no %s yet", late)
			}
		}
		return nil
	}, "all metrics to be there")
	testenv.CheckPage(t, "docs/reference/metrics.md", metricsTable(metrics), *update)
}

// listed matches the lines of metrics of this service and of envoyproxy/ratelimit.
var listed = regexp.MustCompile(`^(# (HELP|TYPE) )?(extauthz|ratelimit)_`)

// metricsTable returns the table of exported metrics: name, type, labels and help.
func metricsTable(metrics string) string {
	help, kind, labels := map[string]string{}, map[string]string{}, map[string]map[string]bool{}
	name := ""
	for line := range strings.Lines(metrics) {
		words := strings.SplitN(strings.TrimSpace(line), " ", 4)
		switch {
		case listed.MatchString(line) && words[1] == "HELP":
			name = words[2]
			help[name], labels[name] = strings.TrimSuffix(words[3], "."), map[string]bool{}
		case listed.MatchString(line) && words[1] == "TYPE":
			kind[name] = words[3]
		case listed.MatchString(line): // a sample, after the lines about its metric
			for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(line, -1) {
				if label[1] != "le" {
					labels[name]["`"+label[1]+"`"] = true
				}
			}
		}
	}
	var b strings.Builder
	b.WriteString("| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(help)) {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n",
			name, kind[name], strings.Join(slices.Sorted(maps.Keys(labels[name])), ", "), help[name])
	}
	return b.String()
}
