package deploy

import (
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// objects are the objects of a chart or a kustomization that the tests check.
type objects struct {
	deployment  appsv1.Deployment
	container   corev1.Container // the only container of the Deployment
	services    map[string]corev1.Service
	configMaps  map[string]corev1.ConfigMap
	policies    []networkingv1.NetworkPolicy
	budget      *policyv1.PodDisruptionBudget
	autoscaler  *autoscalingv2.HorizontalPodAutoscaler
	alerts      map[string]any // the spec of the PrometheusRule
	kinds       []string
	environment map[string]string
}

// decode reads manifests that have a Deployment of the service. Its only container is extauthz.
func decode(t *testing.T, manifests []byte) *objects {
	t.Helper()
	o, found := find(t, manifests)
	if !found {
		t.Fatalf("no Deployment of the service, only %v", o.kinds)
	}
	return o
}

// find reads manifests, and reports whether they have a Deployment of the service.
func find(t *testing.T, manifests []byte) (*objects, bool) {
	t.Helper()
	o := &objects{
		services: map[string]corev1.Service{}, configMaps: map[string]corev1.ConfigMap{}, environment: map[string]string{},
	}
	for _, document := range documents(manifests) {
		var of struct{ Kind string }
		mustUnmarshal(t, document, &of)
		o.kinds = append(o.kinds, of.Kind)
		switch of.Kind {
		case "Deployment":
			var d appsv1.Deployment
			mustUnmarshal(t, document, &d)
			if c := d.Spec.Template.Spec.Containers; len(c) == 1 && c[0].Name == "extauthz" {
				o.deployment = d
			}
		case "Service":
			var s corev1.Service
			mustUnmarshal(t, document, &s)
			o.services[s.Name] = s
		case "ConfigMap":
			var c corev1.ConfigMap
			mustUnmarshal(t, document, &c)
			o.configMaps[c.Name] = c
		case "NetworkPolicy":
			var p networkingv1.NetworkPolicy
			mustUnmarshal(t, document, &p)
			o.policies = append(o.policies, p)
		case "PrometheusRule":
			var r struct{ Spec map[string]any }
			mustUnmarshal(t, document, &r)
			o.alerts = r.Spec
		case "PodDisruptionBudget":
			o.budget = new(policyv1.PodDisruptionBudget)
			mustUnmarshal(t, document, o.budget)
		case "HorizontalPodAutoscaler":
			o.autoscaler = new(autoscalingv2.HorizontalPodAutoscaler)
			mustUnmarshal(t, document, o.autoscaler)
		}
	}
	if len(o.pod().Containers) == 0 {
		return o, false
	}
	o.container = o.pod().Containers[0]
	for _, from := range o.container.EnvFrom {
		settings, ok := o.configMaps[from.ConfigMapRef.Name]
		if !ok {
			t.Fatalf("the environment comes from ConfigMap %s, which does not exist", from.ConfigMapRef.Name)
		}
		for name, value := range settings.Data {
			o.environment[name] = value
		}
	}
	for _, variable := range o.container.Env {
		o.environment[variable.Name] = variable.Value
	}
	return o, true
}

func mustUnmarshal(t *testing.T, document []byte, into any) {
	t.Helper()
	if err := yaml.Unmarshal(document, into); err != nil {
		t.Fatalf("%v in:\n%s", err, document)
	}
}

func (o *objects) pod() *corev1.PodSpec { return &o.deployment.Spec.Template.Spec }

// fitTogether checks what schemas cannot express: objects agree on ports, pods and times.
func (o *objects) fitTogether(t *testing.T) {
	t.Helper()
	o.checkPorts(t)
	o.checkSelectors(t)
	o.checkDraining(t)
	o.checkReplicas(t)
	o.checkSecurity(t)
}

// The ports that the service listens on by default. The manifests do not change them.
var ports = map[string]int32{"grpc": 8081, "http": 8080, "metrics": 6070}

func (o *objects) checkPorts(t *testing.T) {
	t.Helper()
	got := map[string]int32{}
	for _, p := range o.container.Ports {
		got[p.Name] = p.ContainerPort
	}
	if fmt.Sprint(got) != fmt.Sprint(ports) {
		t.Errorf("the container has the ports %v, want %v", got, ports)
	}
	for _, s := range o.services {
		for _, p := range s.Spec.Ports {
			if p.TargetPort != intstr.FromString(p.Name) || p.Port != ports[p.Name] {
				t.Errorf("Service %s: port %s is %d to %s, want %d to the container's port of that name",
					s.Name, p.Name, p.Port, &p.TargetPort, ports[p.Name])
			}
		}
	}
	o.checkEgress(t)
	open := map[string]bool{}
	for _, policy := range o.policies {
		for _, rule := range policy.Spec.Ingress {
			for _, p := range rule.Ports {
				open[p.Port.String()] = true
				if ports[p.Port.String()] == 0 {
					t.Errorf("NetworkPolicy %s opens port %s, which the container does not have", policy.Name, p.Port)
				}
			}
			if len(rule.From) == 0 {
				t.Errorf("NetworkPolicy %s opens %v to all clients", policy.Name, rule.Ports)
			}
		}
	}
	for name := range ports {
		if len(o.policies) > 0 && !open[name] {
			t.Errorf("no NetworkPolicy opens port %s", name)
		}
	}
	for what, probe := range o.probes() {
		if probe.GRPC != nil && probe.GRPC.Port != ports["grpc"] {
			t.Errorf("the %s calls port %d over gRPC", what, probe.GRPC.Port)
		}
		if probe.HTTPGet != nil && probe.HTTPGet.Port != intstr.FromString("http") {
			t.Errorf("the %s calls port %s over HTTP", what, &probe.HTTPGet.Port)
		}
	}
}

// checkEgress checks that the network policies allow the connections that the pod makes: to DNS, and to Redis if it
// has one.
func (o *objects) checkEgress(t *testing.T) {
	t.Helper()
	var got []string
	for _, policy := range o.policies {
		for _, rule := range policy.Spec.Egress {
			for _, p := range rule.Ports {
				got = append(got, fmt.Sprintf("%s/%s", p.Port, *p.Protocol))
			}
		}
	}
	want := []string{"53/UDP", "53/TCP", "5353/UDP", "5353/TCP"}                    // OpenShift's DNS listens on 5353
	if o.environment["REDIS_URL_FILE"] != "" && !slices.Contains(got, "6380/TCP") { // 6380: everything-values.yaml
		want = append(want, "6379/TCP")
	}
	for _, port := range want {
		if len(o.policies) > 0 && !slices.Contains(got, port) {
			t.Errorf("the network policies allow egress to %v, but not to %s", got, port)
		}
	}
}

func (o *objects) probes() map[string]*corev1.Probe {
	return map[string]*corev1.Probe{
		"startup probe": o.container.StartupProbe, "liveness probe": o.container.LivenessProbe,
		"readiness probe": o.container.ReadinessProbe,
	}
}

// checkSelectors checks that all selectors match the labels of the pods.
func (o *objects) checkSelectors(t *testing.T) {
	t.Helper()
	pods := labels.Set(o.deployment.Spec.Template.Labels)
	check := func(object string, selector map[string]string) {
		if len(selector) == 0 || !labels.SelectorFromSet(selector).Matches(pods) {
			t.Errorf("%s selects %v, the pods have %v", object, selector, pods)
		}
	}
	check("the Deployment", o.deployment.Spec.Selector.MatchLabels)
	for _, s := range o.services {
		check("Service "+s.Name, s.Spec.Selector)
	}
	for _, p := range o.policies {
		check("NetworkPolicy "+p.Name, p.Spec.PodSelector.MatchLabels)
	}
	if o.budget != nil {
		check("the PodDisruptionBudget", o.budget.Spec.Selector.MatchLabels)
	}
	for _, c := range o.pod().TopologySpreadConstraints {
		check("the topology spread constraint over "+c.TopologyKey, c.LabelSelector.MatchLabels)
	}
	if o.autoscaler != nil && o.autoscaler.Spec.ScaleTargetRef.Name != o.deployment.Name {
		t.Errorf("the HorizontalPodAutoscaler scales %s, the Deployment is %s",
			o.autoscaler.Spec.ScaleTargetRef.Name, o.deployment.Name)
	}
}

// checkDraining checks that the grace period of a pod is long enough for the service to end.
func (o *objects) checkDraining(t *testing.T) {
	t.Helper()
	drain := 5 * time.Second // for the last log lines
	for _, setting := range []string{"DRAIN_DELAY", "DRAIN_TIMEOUT"} {
		d, err := time.ParseDuration(o.environment[setting])
		if err != nil {
			t.Errorf("%s: %v", setting, err)
		}
		drain += d
	}
	if grace := time.Duration(*o.pod().TerminationGracePeriodSeconds) * time.Second; grace < drain {
		t.Errorf("the grace period of the pod is %v, want at least DRAIN_DELAY + DRAIN_TIMEOUT + 5 s = %v", grace, drain)
	}
}

func (o *objects) checkReplicas(t *testing.T) {
	t.Helper()
	if o.autoscaler != nil {
		if o.deployment.Spec.Replicas != nil {
			t.Error("the Deployment sets a number of replicas, which a HorizontalPodAutoscaler must choose")
		}
		if o.container.Resources.Requests.Cpu().IsZero() {
			t.Error("the HorizontalPodAutoscaler scales by the CPU request, which is not set")
		}
	}
	if o.budget != nil && o.budget.Spec.MaxUnavailable == nil {
		t.Error("the PodDisruptionBudget blocks draining the node of a single replica: want maxUnavailable")
	}
}

// checkSecurity checks the requirements of Kubernetes' profile `restricted`, and that the pod has no token.
func (o *objects) checkSecurity(t *testing.T) {
	t.Helper()
	pod, container := o.pod(), o.container.SecurityContext
	for what, ok := range map[string]bool{
		"runAsNonRoot":                  pod.SecurityContext.RunAsNonRoot != nil && *pod.SecurityContext.RunAsNonRoot,
		"seccompProfile RuntimeDefault": pod.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"no allowPrivilegeEscalation":   container.AllowPrivilegeEscalation != nil && !*container.AllowPrivilegeEscalation,
		"readOnlyRootFilesystem":        container.ReadOnlyRootFilesystem != nil && *container.ReadOnlyRootFilesystem,
		"capabilities: drop ALL": slices.Equal(container.Capabilities.Drop, []corev1.Capability{"ALL"}) &&
			len(container.Capabilities.Add) == 0,
		"no automountServiceAccountToken": pod.AutomountServiceAccountToken != nil && !*pod.AutomountServiceAccountToken,
		"no enableServiceLinks":           pod.EnableServiceLinks != nil && !*pod.EnableServiceLinks,
		"a limit of memory":               !o.container.Resources.Limits.Memory().IsZero(),
		"a tag or digest of the image":    len(o.container.Image) > len("ghcr.io/extauthz/extauthz"),
	} {
		if !ok {
			t.Errorf("the pod lacks: %s", what)
		}
	}
	for _, v := range o.pod().Volumes {
		// The pod reads the files by its group (fsGroup). Other users must not read them.
		if v.Secret != nil && (v.Secret.DefaultMode == nil || *v.Secret.DefaultMode != 0o440) {
			t.Errorf("the volume %s of a Secret does not have the mode 0440", v.Name)
		}
	}
	for _, m := range o.container.VolumeMounts {
		if m.SubPath != "" {
			t.Errorf("%s is mounted by subPath, so changes of it would not reach the pod", m.MountPath)
		}
	}
}
