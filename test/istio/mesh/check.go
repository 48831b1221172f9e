package mesh

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	route "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"

	networking "istio.io/api/networking/v1alpha3"
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
	for _, o := range m.Objects {
		parts := []part{{o.Config, o.String()}}
		if filter, ok := o.Spec.(*networking.EnvoyFilter); ok && len(filter.ConfigPatches) > 0 {
			parts = parts[:0]
			for i := range filter.ConfigPatches {
				parts = append(parts, onlyPatch(o, i))
			}
		}
		for _, p := range parts {
			warning, err := o.schema.ValidateConfig(p.config)
			for _, err := range []error{warning, err} {
				for _, text := range lines(err) {
					errs = append(errs, fmt.Errorf("%s: %s", p.name, text))
				}
			}
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

// part is an object, or one patch of an EnvoyFilter, and its name in errors.
type part struct {
	config config.Config
	name   string
}

func patchName(o Object, i int) string {
	return fmt.Sprintf("%s: configPatches[%d] (%s)", o, i, o.Spec.(*networking.EnvoyFilter).ConfigPatches[i].ApplyTo)
}

// onlyPatch returns an EnvoyFilter with only one of its patches.
func onlyPatch(o Object, i int) part {
	c := o.DeepCopy()
	filter := c.Spec.(*networking.EnvoyFilter)
	filter.ConfigPatches = filter.ConfigPatches[i : i+1]
	return part{c, patchName(o, i)}
}

// without calls f for each part, with its name and all objects without that part.
func (m *Mesh) without(f func(o Object, patch int, name string, rest []config.Config)) {
	for i, o := range m.Objects {
		all := m.configs()
		filter, ok := o.Spec.(*networking.EnvoyFilter)
		if !ok {
			f(o, 0, o.String(), slices.Delete(all, i, i+1))
			continue
		}
		for k := range filter.ConfigPatches {
			c := o.DeepCopy()
			rest := c.Spec.(*networking.EnvoyFilter)
			rest.ConfigPatches = slices.Delete(rest.ConfigPatches, k, k+1)
			all[i] = c
			f(o, k, patchName(o, k), slices.Clone(all))
		}
	}
}

// checkEffect removes each part in turn. If the configurations of Envoy do not change, the part has no effect.
func (m *Mesh) checkEffect(envoys []Envoy) []error {
	var errs []error
	m.without(func(o Object, patch int, name string, rest []config.Config) {
		if o.GroupVersionKind == gvk.PeerAuthentication || o.GroupVersionKind == gvk.ProxyConfig {
			return // it may repeat the default of mTLS, or configure the start of an Envoy
		}
		less, err := m.generate(rest)
		if err == nil && slices.EqualFunc(envoys, less, same) {
			err = fmt.Errorf("it matches nothing and does nothing%s", hint(o, patch, envoys))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	})
	return errs
}

func same(a, b Envoy) bool { return slices.EqualFunc(a.resources(), b.resources(), proto.Equal) }

// hint lists the existing names if a patch names a virtual host or a route that does not exist.
func hint(o Object, patch int, envoys []Envoy) string {
	filter, ok := o.Spec.(*networking.EnvoyFilter)
	if !ok {
		return ""
	}
	match := filter.ConfigPatches[patch].GetMatch()
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
			case !e.sidecar():
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

// blame names the object, if there is one, without which a problem does not exist.
func (m *Mesh) blame(problem string) error {
	var cause string
	m.without(func(o Object, _ int, name string, rest []config.Config) {
		if cause != "" || o.GroupVersionKind != gvk.EnvoyFilter && o.GroupVersionKind != gvk.AuthorizationPolicy {
			return
		}
		if envoys, err := m.generate(rest); err == nil && !slices.Contains(m.problems(envoys), problem) {
			cause = name
		}
	})
	if cause == "" {
		return errors.New(problem)
	}
	return fmt.Errorf("%s: %s", cause, problem)
}
