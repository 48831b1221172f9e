package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// byProxyProtocol lets Envoy read the client's address from the PROXY protocol, so that a test on one machine can have
// clients with any address.
var byProxyProtocol = instead("      filter_chains:\n", `      listener_filters:
        - name: envoy.filters.listener.proxy_protocol
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.listener.proxy_protocol.v3.ProxyProtocol
      filter_chains:
`)

// getFrom sends GET / from an address, with unchanged headers. Envoy's configuration must have the edit
// byProxyProtocol.
func (p *proxy) getFrom(t *testing.T, address string, headers ...string) rawAnswer {
	t.Helper()
	family := "TCP4 " + address + " 127.0.0.1"
	if strings.Contains(address, ":") {
		family = "TCP6 " + address + " ::1"
	}
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{"PROXY " + family + " 4711 " + port, "GET / HTTP/1.1", "host: example.com"}
	return p.sendHTTP1(t, append(lines, headers...)...)
}

// TestAddresses limits clients by their addresses.
func TestAddresses(t *testing.T) {
	t.Parallel()
	root, _ := rulesDirectory(t, `
domain: sample
authz:
  anonymous: allow
  limits:
    - actions: [{ remote_address: }]
descriptors:
  - { key: remote_address, rate_limit: { unit: hour, requests_per_unit: 2 } }
`)
	envoy := startRawEnvoy(t, startService(t, "RUNTIME_ROOT="+root).grpcPort, byProxyProtocol)
	for _, c := range []struct {
		from   string
		status int
	}{
		{"2001:db8::1", http.StatusOK},
		{"2001:db8::2", http.StatusOK},
		{"2001:db8::3", http.StatusTooManyRequests},
		{"2001:db8::ffff:ffff:ffff:ffff", http.StatusTooManyRequests},
		{"2001:db8:0:1::1", http.StatusOK},
		{"192.0.2.1", http.StatusOK},
		{"192.0.2.2", http.StatusOK},
		{"192.0.2.1", http.StatusOK},
		{"192.0.2.1", http.StatusTooManyRequests},
	} {
		if a := envoy.getFrom(t, c.from, "x-forwarded-for: 203.0.113.1"); a.status != c.status {
			t.Errorf("from %s: got %d, want %d", c.from, a.status, c.status)
		}
	}
}

// TestTrustedHops checks a warning of the service. It warns if a policy trusts x-forwarded-for and Envoy does not
// append the address of its peer to that header.
func TestTrustedHops(t *testing.T) {
	t.Parallel()
	const remote = "use_remote_address: true\n"
	instead := func(setting string) []edit { return []edit{byProxyProtocol, instead(remote, setting)} }
	for _, c := range []struct {
		name  string
		edits []edit
		warns bool
	}{
		{"use_remote_address: true", instead(remote), false},
		{"use_remote_address: false", instead("use_remote_address: false\n"), true},
		{"skip_xff_append", instead(remote + "                skip_xff_append: true\n"), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			root, _ := rulesDirectory(t, `
domain: sample
authz:
  anonymous: allow
  limits:
    - actions: [{ remote_address: { trusted_hops: 1 } }]
descriptors:
  - { key: remote_address, rate_limit: { unit: hour, requests_per_unit: 10 } }
`)
			service := startService(t, "RUNTIME_ROOT="+root)
			envoy := startRawEnvoy(t, service.grpcPort, c.edits...)
			sent := [][]string{nil, {"x-forwarded-for: 203.0.113.1"}, {"x-forwarded-for: a, b"}, {"x-forwarded-for: x"}}
			for _, headers := range sent {
				for _, from := range []string{"192.0.2.1", "2001:db8::1"} {
					if a := envoy.getFrom(t, from, headers...); a.status != http.StatusOK {
						t.Fatalf("from %s with %q: got %d, want 200", from, headers, a.status)
					}
				}
			}
			want := 0
			if c.warns {
				want = 2 * len(sent)
			}
			if got := service.metric(t, "extauthz_authz_untrusted_hops_total"); got != want {
				t.Errorf("extauthz_authz_untrusted_hops_total: got %d, want %d", got, want)
			}
			const warning = "x-forwarded-for does not end with the address of the peer"
			if !c.warns {
				if strings.Contains(service.Output(), warning) {
					t.Errorf("the service logged the warning:\n%s", service.Output())
				}
				return
			}
			testenv.Eventually(t, func() error {
				if !strings.Contains(service.Output(), warning) {
					return fmt.Errorf("the log of the service:\n%s", service.Output())
				}
				return nil
			}, "a warning")
		})
	}
}
