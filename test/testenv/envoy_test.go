package testenv

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

const proxyConfig = `
static_resources:
  listeners:
    - name: ingress
      address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type":
                  type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ingress
                route_config:
                  virtual_hosts:
                    - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: upstream } }] }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
  clusters:
    - name: upstream
      load_assignment:
        cluster_name: upstream
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8000 } } }
`

func TestEnvoy(t *testing.T) {
	e := Envoy(t, proxyConfig, Ports{10000: 0, 8000: Port(t, Upstream(t))})
	resp, err := http.Get("http://" + e.Listener("ingress") + "/hello")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "GET /hello\n" {
		t.Errorf("through Envoy: got %s %q, %v; want the upstream's answer", resp.Status, body, err)
	}
	_ = resp.Body.Close()
	if got := e.Stat("cluster.upstream.upstream_rq_total"); got != 1 {
		t.Errorf("upstream_rq_total: got %d, want 1", got)
	}
	if got := e.Stat("no.such.stat"); got != 0 {
		t.Errorf("no.such.stat: got %d, want 0", got)
	}
}

func TestValidateEnvoy(t *testing.T) {
	if err := ValidateEnvoy(t, proxyConfig); err != nil {
		t.Errorf("a valid configuration: %v", err)
	}
	err := ValidateEnvoy(t, strings.Replace(proxyConfig, "stat_prefix", "stats_prefix", 1))
	if err == nil || !strings.Contains(err.Error(), "stats_prefix") {
		t.Errorf("a misspelt field: got %v, want an error that names it", err)
	}
}
