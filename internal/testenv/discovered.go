package testenv

import (
	"encoding/json"
	"fmt"
)

// Discovered is what a control plane tells an Envoy by xDS. Each resource is the JSON of its proto, as protojson prints it.
type Discovered struct {
	Listeners, Routes, Clusters, Endpoints []json.RawMessage
}

// Bootstrap makes of it a configuration for Envoy and ValidateEnvoy, with which that Envoy does the same without its control
// plane: listeners hold their routes and clusters their endpoints, and whatever address something has, it is on this machine.
// Ports stay as they are; who runs it says by Ports which is which.
func (d Discovered) Bootstrap() (string, error) {
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
	config, err := json.MarshalIndent(object{"staticResources": object{"listeners": listeners, "clusters": clusters}}, "", "  ")
	return string(config), err
}

// object is a message in JSON.
type object = map[string]any

// byName are resources by what this field of theirs says.
func byName(resources []json.RawMessage, field string) (map[string]object, error) {
	named := map[string]object{}
	objects, err := each(resources, func(object) error { return nil })
	for _, o := range objects {
		name, _ := o[field].(string)
		named[name] = o
	}
	return named, err
}

// each reads resources, and lets edit change every object in them.
func each(resources []json.RawMessage, edit func(object) error) ([]object, error) {
	objects := make([]object, len(resources))
	for i, r := range resources {
		if err := json.Unmarshal(r, &objects[i]); err != nil {
			return nil, err
		}
		delete(objects[i], "@type") // it was an Any
		if err := visit(objects[i], edit); err != nil {
			return nil, fmt.Errorf("%v: %w", objects[i]["name"], err)
		}
		if err := visit(objects[i], bringHome); err != nil {
			return nil, err
		}
	}
	return objects, nil
}

// visit calls f for every object in v, those that f has put there included.
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

// inlineRoutes puts the routes into a connection manager that would ask for them.
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

// inlineEndpoints puts the endpoints into a cluster that would ask for them, of the control plane or of DNS.
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

// bringHome makes an address one of this machine.
func bringHome(o object) error {
	if address, ok := o["socketAddress"].(object); ok {
		address["address"] = "127.0.0.1"
	}
	return nil
}
