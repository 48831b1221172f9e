package mesh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	networking "istio.io/api/networking/v1alpha3"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pkg/config"
	"istio.io/istio/pkg/config/schema/gvk"
)

// Check finds mistakes that Istio accepts without a message: it omits such parts, or they have another effect than
// intended. Check returns one error for each mistake, with its place.
func (m *Mesh) Check() []error {
	// A part that Istio cannot read would cause other errors.
	if errs := m.checkForm(); len(errs) > 0 {
		return errs
	}
	envoys, err := m.Generate()
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, problem := range m.problems(envoys) {
		errs = append(errs, m.blame(problem))
	}
	if len(errs) > 0 {
		return errs // these problems may be the reason why other parts have no effect
	}
	return m.checkEffect(envoys)
}

// checkForm returns Istio's warnings as errors, such as an unknown field in a typed_config.
func (m *Mesh) checkForm() []error {
	var errs []error
	for _, p := range m.parts() {
		warning, err := p.schema.ValidateConfig(p.alone)
		for _, text := range append(lines(warning), lines(err)...) {
			errs = append(errs, fmt.Errorf("%s: %s", p.name, text))
		}
	}
	return errs
}

// lines splits an error of Istio into single errors, without lines that are not about this object.
func lines(err error) []string {
	if err == nil {
		return nil
	}
	var texts []string
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "* "))
		if line != "" && !strings.HasSuffix(line, "occurred:") &&
			!strings.HasPrefix(line, "EnvoyFilter exposes internal implementation details") {
			texts = append(texts, strings.TrimPrefix(line, "Envoy filter: "))
		}
	}
	return texts
}

// part is an object, or one patch of an EnvoyFilter.
type part struct {
	Object
	patch *networking.EnvoyFilter_EnvoyConfigObjectPatch // nil for a whole object
	name  string                                         // in errors
	alone config.Config                                  // the object with this part only
	rest  []config.Config                                // all objects without this part
}

func (m *Mesh) parts() (parts []part) {
	for i, o := range m.Objects {
		filter, ok := o.Spec.(*networking.EnvoyFilter)
		if !ok || len(filter.ConfigPatches) == 0 {
			parts = append(parts, part{o, nil, o.String(), o.Config, slices.Delete(m.configs(), i, i+1)})
			continue
		}
		for k, patch := range filter.ConfigPatches {
			alone, without, rest := o.DeepCopy(), o.DeepCopy(), m.configs()
			only, others := alone.Spec.(*networking.EnvoyFilter), without.Spec.(*networking.EnvoyFilter)
			only.ConfigPatches = only.ConfigPatches[k : k+1]
			others.ConfigPatches = slices.Delete(others.ConfigPatches, k, k+1)
			rest[i] = without
			name := fmt.Sprintf("%s: configPatches[%d] (%s)", o, k, patch.ApplyTo)
			parts = append(parts, part{o, patch, name, alone, rest})
		}
	}
	return parts
}

// checkEffect removes each part in turn. If the configurations of Envoy do not change, the part has no effect.
func (m *Mesh) checkEffect(envoys []Envoy) []error {
	var errs []error
	for _, p := range m.parts() {
		if p.GroupVersionKind == gvk.PeerAuthentication || p.GroupVersionKind == gvk.ProxyConfig {
			continue // it may repeat the default of mTLS, or configure the start of an Envoy
		}
		less, err := m.generate(p.rest)
		if err == nil && slices.EqualFunc(envoys, less, same) {
			err = fmt.Errorf("it matches nothing and does nothing%s", p.hint(envoys))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	return errs
}

func same(a, b Envoy) bool { return slices.EqualFunc(a.resources(), b.resources(), proto.Equal) }

// hint lists the existing names if a patch names a virtual host or a route that does not exist.
func (p part) hint(envoys []Envoy) string {
	match := p.patch.GetMatch()
	vhost := match.GetRouteConfiguration().GetVhost()
	if vhost.GetName() == "" {
		return ""
	}
	var hosts, routes []string
	for _, v := range virtualHosts(envoys, match.Context) {
		hosts = append(hosts, v.Name)
		for _, r := range v.Routes {
			if v.Name == vhost.Name {
				routes = append(routes, fmt.Sprintf("%q", r.Name))
			}
		}
	}
	slices.Sort(hosts)
	switch {
	case len(hosts) == 0:
		return ": there is no virtual host at all"
	case !slices.Contains(hosts, vhost.Name):
		return fmt.Sprintf(": there is no virtual host %q, but %s", vhost.Name, strings.Join(slices.Compact(hosts), ", "))
	case vhost.GetRoute().GetName() != "":
		return fmt.Sprintf(": the virtual host %s has no route %q, but %s", vhost.Name, vhost.Route.Name,
			strings.Join(routes, ", "))
	}
	return ""
}

// virtualHosts returns the virtual hosts that a patch with this context can match.
func virtualHosts(envoys []Envoy, context networking.EnvoyFilter_PatchContext) []*route.VirtualHost {
	var all []*route.VirtualHost
	for _, e := range envoys {
		for _, v := range within[*route.VirtualHost](e.resources()...) {
			is := networking.EnvoyFilter_SIDECAR_OUTBOUND
			switch {
			case e.kind == model.Router:
				is = networking.EnvoyFilter_GATEWAY
			case strings.HasPrefix(v.Name, "inbound|"):
				is = networking.EnvoyFilter_SIDECAR_INBOUND
			}
			if context == is || context == networking.EnvoyFilter_ANY {
				all = append(all, v)
			}
		}
	}
	return all
}

// blame names the part, if there is one, without which a problem does not exist.
func (m *Mesh) blame(problem string) error {
	for _, p := range m.parts() {
		if p.GroupVersionKind != gvk.EnvoyFilter && p.GroupVersionKind != gvk.AuthorizationPolicy {
			continue
		}
		if envoys, err := m.generate(p.rest); err == nil && !slices.Contains(m.problems(envoys), problem) {
			return fmt.Errorf("%s: %s", p.name, problem)
		}
	}
	return errors.New(problem)
}
