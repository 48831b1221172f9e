package mesh

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	cluster "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listener "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/networking/core"
	"istio.io/istio/pilot/pkg/serviceregistry/kube"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/log"
	"istio.io/istio/pkg/test"
)

// Envoy is what Istio tells one Envoy.
type Envoy struct {
	// Name is "gateway", or that of the Deployment whose sidecar it is.
	Name      string
	Listeners []*listener.Listener
	Routes    []*route.RouteConfiguration
	Clusters  []*cluster.Cluster
}

// resources are all of them.
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

// ingressGateway is the Service of the gateway, by which Istio knows that its port 80 is 8080 in the pod.
func ingressGateway() corev1.Service {
	return corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "istio-ingressgateway", Namespace: "istio-system"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"istio": "ingressgateway"},
			Ports: []corev1.ServicePort{
				{Name: "http2", Port: 80, TargetPort: intstr.FromInt32(8080)},
				{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)},
			},
		},
	}
}

// pod is what a proxy is in.
type pod struct {
	name, namespace, ip string
	labels              map[string]string
	ports               map[string]int32 // of its containers, by name
	kind                model.NodeType
}

// pods are those with an Envoy: the gateway's first.
func (m *Mesh) pods() []pod {
	pods := []pod{{
		name: "gateway", namespace: m.Gateway.Namespace, ip: "10.0.0.1", labels: m.Gateway.Spec.Selector, kind: model.Router,
	}}
	for i, d := range m.Deployments {
		if !slices.Contains(m.injected, d.Namespace) {
			continue
		}
		pods = append(pods, pod{
			name: d.Name, namespace: d.Namespace, ip: fmt.Sprintf("10.0.1.%d", i+1),
			labels: d.Spec.Template.Labels, ports: containerPorts(d), kind: model.SidecarProxy,
		})
	}
	return pods
}

func containerPorts(d appsv1.Deployment) map[string]int32 {
	ports := map[string]int32{}
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
	}
	return ports
}

// Generate asks Istio's control plane what it would tell each Envoy.
func (m *Mesh) Generate() ([]Envoy, error) {
	configs := make([]config.Config, len(m.Objects))
	for i, o := range m.Objects {
		configs[i] = o.Config
	}
	return m.generate(configs)
}

func (m *Mesh) generate(configs []config.Config) ([]Envoy, error) {
	for _, scope := range log.Scopes() {
		scope.SetOutputLevel(log.NoneLevel) // what it says of its own start and end helps nobody here, and what matters Check finds
	}
	pods := m.pods()
	services, instances := m.registry(pods)
	var envoys []Envoy
	err := test.Wrap(func(t test.Failer) {
		pilot := core.NewConfigGenTest(t, core.TestOptions{
			Configs: clone(configs), MeshConfig: proto.CloneOf(m.config), Services: services, Instances: instances,
		})
		for _, p := range pods {
			proxy := pilot.SetupProxy(&model.Proxy{
				Type: p.kind, ID: p.name + "." + p.namespace, ConfigNamespace: p.namespace, IPAddresses: []string{p.ip},
				Labels: p.labels, Metadata: &model.NodeMetadata{Labels: p.labels, Namespace: p.namespace, IstioVersion: version},
			})
			e := Envoy{Name: p.name, Listeners: pilot.Listeners(proxy), Clusters: pilot.Clusters(proxy)}
			e.Routes = pilot.RoutesFromListeners(proxy, e.Listeners)
			sortByName(e.Listeners) // their order is another each time, and means nothing
			sortByName(e.Routes)
			sortByName(e.Clusters)
			envoys = append(envoys, e)
		}
	})
	return envoys, err
}

// HTTPFilters are the names of the HTTP filters of a listener's first filter chain, in their order.
func (e Envoy) HTTPFilters(listenerName string) []string {
	var names []string
	for _, l := range e.Listeners {
		if l.Name != listenerName {
			continue
		}
		visit(l.FilterChains[0], func(m proto.Message) {
			if f, ok := m.(*hcm.HttpFilter); ok {
				names = append(names, f.Name)
			}
		})
	}
	return names
}

func sortByName[M interface{ GetName() string }](resources []M) {
	slices.SortFunc(resources, func(a, b M) int { return strings.Compare(a.GetName(), b.GetName()) })
}

// routeConfigurations are those that the Envoy asks for, and those that its listeners have.
func (e Envoy) routeConfigurations() []*route.RouteConfiguration {
	var all []*route.RouteConfiguration
	for _, resource := range e.resources() {
		visit(resource, func(m proto.Message) {
			if r, ok := m.(*route.RouteConfiguration); ok {
				all = append(all, r)
			}
		})
	}
	return all
}

// version is that of the proxies, which Istio makes some differences by.
const version = "1.31.0"

// clone keeps Istio, which changes in place what it is given, from the objects of a mesh that is asked about more than once.
func clone(configs []config.Config) []config.Config {
	copies := make([]config.Config, len(configs))
	for i, c := range configs {
		copies[i] = c.DeepCopy()
	}
	return copies
}

// registry is what Istio knows of services, and which pods are behind them.
func (m *Mesh) registry(pods []pod) ([]*model.Service, []*model.ServiceInstance) {
	var services []*model.Service
	var instances []*model.ServiceInstance
	for _, s := range append(m.services, m.Gateway) {
		service := kube.ConvertService(s, nil, domain, "", domain)
		services = append(services, service)
		for _, p := range pods {
			if p.namespace != s.Namespace || len(s.Spec.Selector) == 0 || !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.labels)) {
				continue
			}
			for i, port := range s.Spec.Ports {
				instances = append(instances, &model.ServiceInstance{
					Service: service, ServicePort: service.Ports[i],
					Endpoint: &model.IstioEndpoint{
						Addresses: []string{p.ip}, EndpointPort: uint32(target(port, p)), ServicePortName: port.Name,
						Labels: maps.Clone(p.labels), Namespace: p.namespace,
					},
				})
			}
		}
	}
	return services, instances
}

// target is the port of the pod that a port of a Service leads to.
func target(port corev1.ServicePort, p pod) int32 {
	switch {
	case port.TargetPort.Type == intstr.String:
		return p.ports[port.TargetPort.StrVal]
	case port.TargetPort.IntVal != 0:
		return port.TargetPort.IntVal
	}
	return port.Port
}
