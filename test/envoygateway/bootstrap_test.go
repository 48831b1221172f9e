package envoygateway

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

const (
	discoveredListener = `{
		"@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
		"name": "ingress",
		"address": {"socketAddress": {"address": "0.0.0.0", "portValue": 10000}},
		"filterChains": [{"filters": [{
			"name": "envoy.filters.network.http_connection_manager",
			"typedConfig": {
				"@type":
				"type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
				"statPrefix": "ingress",
				"rds": {"routeConfigName": "all", "configSource": {"ads": {}}},
				"httpFilters": [{
					"name": "envoy.filters.http.router",
					"typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}
				}]
			}
		}]}]
	}`
	discoveredRoutes = `{
		"name": "all",
		"virtualHosts": [{"name": "all", "domains": ["*"], "routes": [
			{"match": {"prefix": "/dns"}, "route": {"cluster": "dns"}},
			{"match": {"prefix": "/"}, "route": {"cluster": "eds"}}
		]}]
	}`
	discoveredByEDS = `{
		"name": "eds", "type": "EDS", "edsClusterConfig": {"serviceName": "service", "edsConfig": {"ads": {}}}}`
	discoveredByDNS = `{
		"name": "dns", "type": "STRICT_DNS", "loadAssignment": {"clusterName": "dns", "endpoints": [{"lbEndpoints": [
		{"endpoint": {"address": {"socketAddress": {"address": "host.invalid", "portValue": 8001}}}}]}]}}`
	discoveredEndpoints = `{"clusterName": "service", "endpoints": [{"lbEndpoints": [
		{"endpoint": {"address": {"socketAddress": {"address": "192.0.2.1", "portValue": 8000}}}}]}]}`
)

func raw(resources ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, r := range resources {
		out = append(out, json.RawMessage(r))
	}
	return out
}

func TestDiscovered(t *testing.T) {
	config, err := xdsResources{
		Listeners: raw(discoveredListener),
		Routes:    raw(discoveredRoutes),
		Clusters:  raw(discoveredByEDS, discoveredByDNS),
		Endpoints: raw(discoveredEndpoints),
	}.bootstrap()
	if err != nil {
		t.Fatal(err)
	}
	upstream := testenv.Port(t, testenv.Upstream(t))
	e := testenv.Envoy(t, config, testenv.Ports{10000: 0, 8000: upstream, 8001: upstream})
	for _, path := range []string{"/eds", "/dns"} {
		resp, err := http.Get("http://" + e.Listener("ingress") + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: got %s, want the upstream's 200", path, resp.Status)
		}
	}
}

func TestDiscoveredIncomplete(t *testing.T) {
	for _, c := range []struct {
		name string
		d    xdsResources
		want string
	}{
		{"no routes", xdsResources{Listeners: raw(discoveredListener)}, `ingress: there are no routes "all"`},
		{"no endpoints", xdsResources{Clusters: raw(discoveredByEDS)}, `eds: there are no endpoints "service"`},
		{"invalid JSON", xdsResources{Routes: raw(`{`)}, "unexpected end of JSON"},
	} {
		if _, err := c.d.bootstrap(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
}
