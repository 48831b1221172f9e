package mesh

import (
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"istio.io/api/label"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/serviceregistry/kube"
)

// ingressGateway returns the Service of the gateway. It maps port 80 to port 8080 of the pod.
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

// pod is a pod with a proxy.
type pod struct {
	name, namespace, ip string
	labels              map[string]string
	ports               map[string]int32 // of its containers, by name
	kind                model.NodeType
}

// pods returns the pods with an Envoy. The pod of the gateway is the first.
func (m *Mesh) pods() []pod {
	pods := []pod{{
		name: "gateway", namespace: m.Gateway.Namespace, ip: "10.0.0.1", labels: m.Gateway.Spec.Selector, kind: model.Router,
	}}
	for i, w := range m.waypoints {
		pods = append(pods, pod{
			name: w.Name, namespace: w.Namespace, ip: fmt.Sprintf("10.0.2.%d", i+1),
			labels: map[string]string{label.IoK8sNetworkingGatewayGatewayName.Name: w.Name}, kind: model.Waypoint,
		})
	}
	for i, d := range m.Deployments {
		if !m.injects(d) {
			continue
		}
		pods = append(pods, pod{
			name: d.Name, namespace: d.Namespace, ip: fmt.Sprintf("10.0.1.%d", i+1),
			labels: d.Spec.Template.Labels, ports: containerPorts(d), kind: model.SidecarProxy,
		})
	}
	return pods
}

// injects reports whether the pods of a Deployment get a sidecar, by the same labels and annotations as Istio's
// webhooks. Pods of an injected gateway do not count, because they are those of Mesh.Gateway.
func (m *Mesh) injects(d appsv1.Deployment) bool {
	pod, namespace := d.Spec.Template, map[string]string{}
	for _, n := range m.namespaces {
		if n.Name == d.Namespace {
			namespace = n.Labels
		}
	}
	switch {
	case namespace["istio-injection"] == "disabled", pod.Labels["sidecar.istio.io/inject"] == "false",
		pod.Annotations["inject.istio.io/templates"] == "gateway":
		return false
	}
	return namespace["istio-injection"] == "enabled" || namespace["istio.io/rev"] != "" ||
		pod.Labels["sidecar.istio.io/inject"] == "true" || pod.Labels["istio.io/rev"] != ""
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

// registry returns the services and their endpoints, in Istio's form.
func (m *Mesh) registry(pods []pod) ([]*model.Service, []*model.ServiceInstance) {
	var services []*model.Service
	var instances []*model.ServiceInstance
	for _, s := range slices.Concat(m.services, m.waypointServices(), []corev1.Service{m.Gateway}) {
		service := kube.ConvertService(s, nil, domain, "", domain)
		services = append(services, service)
		for _, p := range pods {
			if p.namespace != s.Namespace || len(s.Spec.Selector) == 0 ||
				!labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(p.labels)) {
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

// target returns the port of the pod for a port of a Service.
func target(port corev1.ServicePort, p pod) int32 {
	switch {
	case port.TargetPort.Type == intstr.String:
		return p.ports[port.TargetPort.StrVal]
	case port.TargetPort.IntVal != 0:
		return port.TargetPort.IntVal
	}
	return port.Port
}
