// Package mesh renders manifests, passes them to Istio's own control plane, and finds mistakes that neither step
// reports. The result is a configuration that a real Envoy can run.
package mesh

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	kustomize "sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/config/kube/crd"
	"istio.io/istio/pkg/config"
	istiomesh "istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/schema/collections"
	"istio.io/istio/pkg/config/schema/gvk"
	"istio.io/istio/pkg/config/schema/resource"
	"istio.io/istio/pkg/util/protomarshal"
)

// Mesh has the objects of a cluster that Istio reads.
type Mesh struct {
	// Gateway is the Service of the gateway. By default, it selects the pods that `istioctl install` makes.
	Gateway corev1.Service
	// Objects are the objects of Istio's own kinds.
	Objects []Object
	// Deployments are the applications, with a sidecar or without.
	Deployments []appsv1.Deployment
	// ConfigMaps are read by tests.
	ConfigMaps []corev1.ConfigMap

	config     *meshconfig.MeshConfig
	services   []corev1.Service
	waypoints  []gatewayv1.Gateway
	namespaces []corev1.Namespace
}

// Object is an object of Istio and its file.
type Object struct {
	config.Config
	File   string
	schema resource.Schema
}

// String names the object in errors.
func (o Object) String() string {
	return fmt.Sprintf("%s: %s %s/%s", o.File, o.GroupVersionKind.Kind, o.Namespace, o.Name)
}

// Load renders kustomizations and reads their objects. An unknown field is an error, and all errors are reported at
// once. The file meshConfig has the mesh-wide settings below `meshConfig:`, as values of istiod's chart do.
func Load(meshConfig string, kustomizations ...string) (*Mesh, error) {
	settings, err := loadMeshConfig(meshConfig)
	errs := []error{err}
	m := &Mesh{config: settings, Gateway: ingressGateway()}
	for _, dir := range kustomizations {
		manifests, err := render(dir)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", dir, err))
		}
		for _, r := range manifests {
			errs = append(errs, m.add(r))
		}
	}
	return m, errors.Join(errs...)
}

func loadMeshConfig(path string) (*meshconfig.MeshConfig, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var values struct {
		MeshConfig json.RawMessage `json:"meshConfig"`
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	// ApplyMeshConfigDefaults below ignores unknown fields.
	if err := protomarshal.ApplyJSONStrict(string(values.MeshConfig), &meshconfig.MeshConfig{}); err != nil {
		return nil, fmt.Errorf("%s: meshConfig: %w", path, err)
	}
	settings, err := istiomesh.ApplyMeshConfigDefaults(string(values.MeshConfig))
	if err != nil {
		return nil, fmt.Errorf("%s: meshConfig: %w", path, err)
	}
	return settings, nil
}

// manifest is a rendered object and its file.
type manifest struct {
	file string
	*kustomize.Resource
}

// render builds a kustomization so that each object knows its file.
func render(dir string) ([]manifest, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	around, err := os.MkdirTemp("", "mesh-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(around)
	rel, err := filepath.Rel(around, dir)
	if err != nil {
		return nil, err
	}
	overlay := fmt.Sprintf("resources: [%q]\nbuildMetadata: [originAnnotations]\n", rel)
	if err := os.WriteFile(filepath.Join(around, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		return nil, err
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), around)
	if err != nil {
		return nil, err
	}
	var manifests []manifest
	for _, r := range rendered.Resources() {
		origin, err := r.GetOrigin()
		if err != nil {
			return nil, err
		}
		file := filepath.Join(around, origin.Path, origin.ConfiguredIn) // one of them is set
		if wd, err := os.Getwd(); err == nil {
			if rel, err := filepath.Rel(wd, file); err == nil {
				file = rel
			}
		}
		manifests = append(manifests, manifest{file: file, Resource: r})
	}
	return manifests, nil
}

// add adds an object. It ignores kinds that Istio does not read.
func (m *Mesh) add(r manifest) error {
	text, err := r.AsYAML()
	if err != nil {
		return err
	}
	switch id := r.GetGvk(); id.Kind {
	case "Namespace":
		m.namespaces = append(m.namespaces, corev1.Namespace{})
		err = yaml.UnmarshalStrict(text, &m.namespaces[len(m.namespaces)-1])
	case "Service":
		m.services = append(m.services, corev1.Service{})
		err = yaml.UnmarshalStrict(text, &m.services[len(m.services)-1])
	case "Deployment":
		m.Deployments = append(m.Deployments, appsv1.Deployment{})
		err = yaml.UnmarshalStrict(text, &m.Deployments[len(m.Deployments)-1])
	case "ConfigMap":
		m.ConfigMaps = append(m.ConfigMaps, corev1.ConfigMap{})
		err = yaml.UnmarshalStrict(text, &m.ConfigMaps[len(m.ConfigMaps)-1])
	default:
		schema, ok := collections.Pilot.FindByGroupVersionAliasesKind(config.GroupVersionKind{
			Group: id.Group, Version: id.Version, Kind: id.Kind,
		})
		if ok {
			return m.addObject(r.file, schema, text)
		}
		switch {
		case strings.HasSuffix(id.Group, ".istio.io"):
			err = fmt.Errorf("%s is not a kind of Istio in %s/%s", id.Kind, id.Group, id.Version)
		case id.Group == gvk.KubernetesGateway.Group && isWaypoint(text):
			m.waypoints = append(m.waypoints, gatewayv1.Gateway{})
			err = yaml.UnmarshalStrict(text, &m.waypoints[len(m.waypoints)-1])
		case id.Group == gvk.KubernetesGateway.Group:
			err = errors.New("an object of Kubernetes' Gateway API, which this check does not read: " +
				"use istioctl proxy-config to see the gateway's configuration")
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %s %s/%s: %w", r.file, r.GetKind(), r.GetNamespace(), r.GetName(), err)
	}
	return nil
}

func (m *Mesh) addObject(file string, schema resource.Schema, text []byte) error {
	var kind crd.IstioKind
	if err := yaml.UnmarshalStrict(text, &kind); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c, err := crd.ConvertObjectInternal(schema, &kind, domain, func(s resource.Schema, js string) (config.Spec, error) {
		spec, err := s.NewInstance()
		if err != nil {
			return nil, err
		}
		return spec, config.ApplyJSONStrict(spec, js)
	})
	if err != nil {
		return fmt.Errorf("%s: %s %s/%s: spec: %w", file, kind.Kind, kind.Namespace, kind.Name, err)
	}
	m.Objects = append(m.Objects, Object{Config: *c, File: file, schema: schema})
	return nil
}

const domain = "cluster.local"
