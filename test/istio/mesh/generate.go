package mesh

import (
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/test"
)

// Envoy is the configuration that Istio makes for one Envoy.
type Envoy struct {
	// Name is "gateway", or the name of the Deployment with a sidecar, or of the Gateway of a waypoint.
	Name      string
	Listeners []*listener.Listener
	Routes    []*route.RouteConfiguration
	Clusters  []*cluster.Cluster

	kind model.NodeType
}

func (e Envoy) resources() []proto.Message {
	var all []proto.Message
	for _, l := range e.Listeners {
		all = append(all, l)
	}
	for _, r := range e.Routes {
		all = append(all, r)
	}
	for _, c := range e.Clusters {
		all = append(all, c)
	}
	return all
}

// Generate lets Istio's control plane make the configuration of each Envoy.
func (m *Mesh) Generate() ([]Envoy, error) {
	return m.generate(m.configs())
}

func (m *Mesh) configs() []config.Config {
	configs := make([]config.Config, len(m.Objects))
	for i, o := range m.Objects {
		configs[i] = o.Config
	}
	return configs
}

func (m *Mesh) generate(configs []config.Config) ([]Envoy, error) {
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel) // its start and end do not matter here, and Check finds the mistakes
	}
	pods, copies := m.pods(), make([]config.Config, len(configs))
	for i, c := range configs {
		copies[i] = c.DeepCopy() // Istio changes them in place
	}
	services, instances := m.registry(pods)
	var envoys []Envoy
	err := test.Wrap(func(t test.Failer) {
		pilot := core.NewConfigGenTest(t, core.TestOptions{
			Configs: copies, MeshConfig: proto.CloneOf(m.config), Services: services, Instances: instances,
		})
		if len(m.waypoints) > 0 {
			pilot.Env().AmbientIndexes = m.ambientIndex(t)
			push := model.NewPushContext() // the first one has no services of waypoints
			push.InitContext(pilot.Env(), nil, nil)
			pilot.Env().SetPushContext(push)
		}
		for _, p := range pods {
			proxy := pilot.SetupProxy(&model.Proxy{
				Type: p.kind, ID: p.name + "." + p.namespace, ConfigNamespace: p.namespace, IPAddresses: []string{p.ip},
				Labels: p.labels, Metadata: &model.NodeMetadata{Labels: p.labels, Namespace: p.namespace, IstioVersion: version},
			})
			e := Envoy{Name: p.name, kind: p.kind, Listeners: pilot.Listeners(proxy), Clusters: pilot.Clusters(proxy)}
			for _, l := range e.Listeners { // no request comes to these chains: they are for pods, and there are none
				l.FilterChains = slices.DeleteFunc(l.FilterChains, func(c *listener.FilterChain) bool {
					return strings.HasPrefix(c.Name, "direct-")
				})
			}
			e.Routes = pilot.RoutesFromListeners(proxy, e.Listeners)
			sortByName(e.Listeners) // their order is random
			sortByName(e.Routes)
			sortByName(e.Clusters)
			envoys = append(envoys, e)
		}
	})
	return envoys, err
}

// HTTPFilters returns the names of the HTTP filters in a listener's first filter chain, in their order.
func (e Envoy) HTTPFilters(listenerName string) []string {
	var names []string
	for _, l := range e.Listeners {
		if l.Name != listenerName || len(l.FilterChains) == 0 {
			continue
		}
		for _, f := range within[*hcm.HttpFilter](l.FilterChains[0]) {
			names = append(names, f.Name)
		}
	}
	return names
}

func sortByName[M interface{ GetName() string }](resources []M) {
	slices.SortFunc(resources, func(a, b M) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// version is the version of the proxies, on which some parts of the configuration depend.
const version = "1.31.0"
