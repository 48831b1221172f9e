package mesh

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"istio.io/api/label"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pilot/pkg/serviceregistry/ambient"
	"istio.io/istio/pkg/activenotifier"
	"istio.io/istio/pkg/config/constants"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/config/schema/gvr"
	"istio.io/istio/pkg/kube"
	"istio.io/istio/pkg/kube/kclient/clienttest"
	"istio.io/istio/pkg/kube/krt"
	"istio.io/istio/pkg/kube/multicluster"
	"istio.io/istio/pkg/ptr"
	"istio.io/istio/pkg/test"
)

// isWaypoint reports whether an object of the Gateway API is the Gateway of a waypoint.
func isWaypoint(text []byte) bool {
	var g gatewayv1.Gateway
	return yaml.Unmarshal(text, &g) == nil && g.Kind == "Gateway" &&
		g.Spec.GatewayClassName == constants.WaypointGatewayClassName
}

// waypointServices returns the Services that istiod makes for waypoints.
func (m *Mesh) waypointServices() (services []corev1.Service) {
	for _, w := range m.waypoints {
		s := corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: w.Namespace}}
		s.Labels = map[string]string{label.GatewayManaged.Name: constants.ManagedGatewayMeshControllerLabel}
		s.Spec.Selector = map[string]string{label.IoK8sNetworkingGatewayGatewayName.Name: w.Name}
		s.Spec.Ports = []corev1.ServicePort{{Name: "mesh", Port: model.HBoneInboundListenPort}}
		services = append(services, s)
	}
	return services
}

// ambientIndex returns Istio's index of a cluster with these objects. It knows which waypoint each Service uses.
func (m *Mesh) ambientIndex(t test.Failer) ambient.Index {
	var objects []runtime.Object
	for _, n := range m.namespaces {
		objects = append(objects, n.DeepCopy())
	}
	for _, s := range slices.Concat(m.services, m.waypointServices()) {
		objects = append(objects, s.DeepCopy())
	}
	for _, w := range m.waypoints {
		w.Status.Addresses = []gatewayv1.GatewayStatusAddress{{ // istiod sets it when a pod is ready
			Type: ptr.Of(gatewayv1.HostnameAddressType), Value: w.Name + "." + w.Namespace + ".svc." + domain,
		}}
		objects = append(objects, w.DeepCopy())
	}
	client, stop := kube.NewFakeClient(objects...), test.NewStop(t)
	clienttest.MakeCRD(t, client, gvr.KubernetesGateway)
	watcher := meshwatcher.NewTestWatcher(m.config)
	clusters := multicluster.NewController(multicluster.ControllerOptions{
		Client: client, SystemNamespace: m.config.RootNamespace, MeshConfig: watcher, Debugger: krt.GlobalDebugHandler,
	})
	index := ambient.New(ambient.Options{
		SystemNamespace: m.config.RootNamespace, DomainSuffix: domain, XDSUpdater: model.NewEndpointIndexUpdater(nil),
		MeshConfig: watcher, StatusNotifier: activenotifier.New(false), Debugger: krt.GlobalDebugHandler,
		MultiClusterController: clusters,
	})
	if err := clusters.Run(stop); err != nil {
		t.Fatal(err)
	}
	client.RunAndWait(stop)
	go index.Run(stop)
	if !kube.WaitForCacheSync("ambient", stop, index.HasSynced) {
		t.Fatal("the ambient index did not start")
	}
	return index
}
