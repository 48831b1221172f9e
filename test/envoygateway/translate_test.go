package envoygateway

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/extauthz/extauthz/test/testenv"
)

// translate lets Envoy Gateway translate manifests to xDS. An error lists all resources that are invalid, that Envoy
// Gateway refuses, and that it ignores.
func translate(t *testing.T, manifests []manifest) (xdsResources, error) {
	t.Helper()
	read := inCluster(manifests)
	input := text(t, read)
	out, err := egctl(t, input, "translate", "--from", "gateway-api", "--to", "gateway-api,xds", "--output", "json")
	if err != nil {
		// `translate` stops at the first mistake and does not name its place. `validate` names all of them.
		invalid, validateErr := egctl(t, input, "validate")
		if validateErr != nil {
			return xdsResources{}, validateErr
		}
		return xdsResources{}, fmt.Errorf("%w\n%s", err, invalid)
	}
	var translated map[string]json.RawMessage
	if err := json.Unmarshal(out, &translated); err != nil {
		return xdsResources{}, fmt.Errorf("the output of egctl: %w", err)
	}
	xds := translated["xds"]
	delete(translated, "xds")
	if err := judge(read, translated); err != nil {
		return xdsResources{}, err
	}
	return discovered(xds)
}

// egctl runs an experimental command of egctl on manifests.
func egctl(t *testing.T, input string, args ...string) ([]byte, error) {
	t.Helper()
	cmd := exec.Command(testenv.Binary(t, "egctl", "EGCTL_BIN"),
		append(append([]string{"experimental"}, args...), "--file", "-")...)
	cmd.Stdin = strings.NewReader(input)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %s", cmd, err, stderr.String())
	}
	return out, nil
}

// discovered returns the configuration for the Envoys of a gateway.
func discovered(xds json.RawMessage) (xdsResources, error) {
	var gateways map[string]struct {
		// Configuration dumps, one for each kind of resource.
		Configs []struct {
			DynamicListeners []struct {
				ActiveState struct{ Listener json.RawMessage }
			}
			DynamicRouteConfigs    []struct{ RouteConfig json.RawMessage }
			DynamicActiveClusters  []struct{ Cluster json.RawMessage }
			DynamicEndpointConfigs []struct{ EndpointConfig json.RawMessage }
		}
	}
	var d xdsResources
	if err := json.Unmarshal(xds, &gateways); err != nil {
		return d, fmt.Errorf("the xDS of egctl: %w", err)
	}
	if len(gateways) != 1 {
		return d, fmt.Errorf("there are %d gateways, want 1", len(gateways))
	}
	for _, gateway := range gateways {
		for _, dump := range gateway.Configs {
			for _, l := range dump.DynamicListeners {
				d.Listeners = append(d.Listeners, l.ActiveState.Listener)
			}
			for _, r := range dump.DynamicRouteConfigs {
				d.Routes = append(d.Routes, r.RouteConfig)
			}
			for _, c := range dump.DynamicActiveClusters {
				d.Clusters = append(d.Clusters, c.Cluster)
			}
			for _, e := range dump.DynamicEndpointConfigs {
				d.Endpoints = append(d.Endpoints, e.EndpointConfig)
			}
		}
	}
	return d, nil
}
