package envoygateway

import (
	"encoding/json"
	"fmt"
)

// xdsResources is the configuration that a control plane sends to an Envoy by xDS. Each resource is JSON, as protojson
// prints it.
type xdsResources struct {
	Listeners, Routes, Clusters, Endpoints []json.RawMessage
}

// bootstrap returns a configuration for testenv.Envoy and testenv.ValidateEnvoy that needs no control plane.
// Listeners hold their routes, and clusters hold their endpoints. Each address becomes 127.0.0.1. Ports do not
// change: replace them with testenv.Ports.
func (d xdsResources) bootstrap() (string, error) {
	routes, err := byName(d.Routes, "name")
	if err != nil {
		return "", err
	}
	endpoints, err := byName(d.Endpoints, "clusterName")
	if err != nil {
		return "", err
	}
	listeners, err := each(d.Listeners, func(o object) error { return inlineRoutes(o, routes) })
	if err != nil {
		return "", err
	}
	clusters, err := each(d.Clusters, func(o object) error { return inlineEndpoints(o, endpoints) })
	if err != nil {
		return "", err
	}
	static := object{"listeners": listeners, "clusters": clusters}
	config, err := json.MarshalIndent(object{"staticResources": static}, "", "  ")
	return string(config), err
}

// object is a message in JSON.
type object = map[string]any

// byName returns the resources by the value of this field.
func byName(resources []json.RawMessage, field string) (map[string]object, error) {
	named := map[string]object{}
	objects, err := each(resources, func(object) error { return nil })
	for _, o := range objects {
		name, _ := o[field].(string)
		named[name] = o
	}
	return named, err
}

// each reads resources and calls edit for every object in them.
func each(resources []json.RawMessage, edit func(object) error) ([]object, error) {
	objects := make([]object, len(resources))
	for i, r := range resources {
		if err := json.Unmarshal(r, &objects[i]); err != nil {
			return nil, err
		}
		delete(objects[i], "@type") // of an Any
		if err := visit(objects[i], edit); err != nil {
			return nil, fmt.Errorf("%v: %w", objects[i]["name"], err)
		}
		if err := visit(objects[i], useLoopback); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// visit calls f for every object in v, including objects that f adds.
func visit(v any, f func(object) error) error {
	var inner []any
	switch v := v.(type) {
	case object:
		if err := f(v); err != nil {
			return err
		}
		for _, w := range v {
			inner = append(inner, w)
		}
	case []any:
		inner = v
	}
	for _, w := range inner {
		if err := visit(w, f); err != nil {
			return err
		}
	}
	return nil
}

// inlineRoutes puts the routes into a connection manager that would fetch them by RDS.
func inlineRoutes(o object, routes map[string]object) error {
	rds, ok := o["rds"].(object)
	if !ok {
		return nil
	}
	name, _ := rds["routeConfigName"].(string)
	config, ok := routes[name]
	if !ok {
		return fmt.Errorf("there are no routes %q", name)
	}
	delete(o, "rds")
	o["routeConfig"] = config
	return nil
}

// inlineEndpoints puts the endpoints into a cluster that would fetch them by EDS, and makes a cluster that uses DNS
// static.
func inlineEndpoints(o object, endpoints map[string]object) error {
	switch o["type"] {
	case "STRICT_DNS", "LOGICAL_DNS":
		o["type"] = "STATIC"
	case "EDS":
		eds, _ := o["edsClusterConfig"].(object)
		name, _ := eds["serviceName"].(string)
		if name == "" {
			name, _ = o["name"].(string)
		}
		assignment, ok := endpoints[name]
		if !ok {
			return fmt.Errorf("there are no endpoints %q", name)
		}
		delete(o, "edsClusterConfig")
		o["type"], o["loadAssignment"] = "STATIC", assignment
	}
	return nil
}

// useLoopback replaces a socket address by 127.0.0.1.
func useLoopback(o object) error {
	if address, ok := o["socketAddress"].(object); ok {
		address["address"] = "127.0.0.1"
	}
	return nil
}
