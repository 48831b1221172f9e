package mesh

import (
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"istio.io/istio/manifests"
	"istio.io/istio/pkg/kube/inject"
)

// Inject adds Istio's own container to the pods of a Deployment, with the template of Istio's charts.
func (m *Mesh) Inject(d appsv1.Deployment) (*appsv1.Deployment, error) {
	const chart = "charts/istio-control/istio-discovery/"
	template, err := manifests.FS.ReadFile(chart + "files/injection-template.yaml")
	if err != nil {
		return nil, err
	}
	text, err := manifests.FS.ReadFile(chart + "values.yaml")
	if err != nil {
		return nil, err
	}
	var chartValues struct {
		Defaults map[string]any `json:"_internal_defaults_do_not_set"`
	}
	if err := yaml.Unmarshal(text, &chartValues); err != nil {
		return nil, err
	}
	if text, err = yaml.Marshal(chartValues.Defaults); err != nil {
		return nil, err
	}
	values, err := inject.NewValuesConfig(string(text))
	if err != nil {
		return nil, err
	}
	templates, err := inject.ParseTemplates(inject.RawTemplates{inject.SidecarTemplateName: string(template)})
	if err != nil {
		return nil, err
	}
	var warnings []string
	warn := func(warning string) { warnings = append(warnings, warning) }
	object, err := inject.IntoObject(nil, templates, values, "default", m.config, &d, warn)
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("nothing is injected: %s", strings.Join(warnings, "; "))
	}
	return object.(*appsv1.Deployment), nil
}
