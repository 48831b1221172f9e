package envoygateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// answered is a resource with the status that Envoy Gateway sets.
type answered struct {
	manifest
	conditions []condition
}

// condition is a condition of a status.
type condition struct{ kind, status, message string }

// judge compares the input of Envoy Gateway with its output, by kinds of resources. The error names each resource
// that Envoy Gateway refuses or ignores. It ignores a policy or route that refers to a missing resource: this gets no
// status.
func judge(input []manifest, translated map[string]json.RawMessage) error {
	answers := map[string]answered{}
	for kind, resources := range translated {
		list, err := readAnswers(resources)
		if err != nil {
			return fmt.Errorf("the %s of egctl: %w", kind, err)
		}
		for _, a := range list {
			answers[a.String()] = a
		}
	}
	var errs []error
	for _, m := range input {
		if !strings.HasPrefix(m.group(), "gateway.") || m["kind"] == "ReferenceGrant" {
			continue // these have no status
		}
		errs = append(errs, answers[m.String()].judge(m.String()))
	}
	return errors.Join(errs...)
}

// judge returns an error for a resource that is not fully active.
func (a answered) judge(name string) error {
	if len(a.conditions) == 0 {
		return fmt.Errorf("%s: it has no status: check that its targetRefs, parentRefs or gatewayClassName exist", name)
	}
	var errs []error
	for _, c := range a.conditions {
		switch c.kind {
		case "Accepted", "ResolvedRefs", "Programmed":
			if c.status == "True" {
				continue
			}
		case "Overridden": // partly, by the policy of a route, which has its own status
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %s is %s: %s", name, c.kind, c.status, c.message))
	}
	return errors.Join(errs...)
}

// readAnswers reads one resource, or a list of them.
func readAnswers(resources json.RawMessage) ([]answered, error) {
	var list []manifest
	if err := json.Unmarshal(resources, &list); err != nil {
		var single manifest
		if err := json.Unmarshal(resources, &single); err != nil {
			return nil, err
		}
		list = []manifest{single}
	}
	var out []answered
	for _, m := range list {
		out = append(out, answered{m, conditions(m["status"])})
	}
	return out, nil
}

// conditions finds all conditions in a status. A Gateway's listeners, a route's parents and a policy's ancestors have
// their own lists of conditions.
func conditions(v any) []condition {
	var found []condition
	switch v := v.(type) {
	case []any:
		for _, w := range v {
			found = append(found, conditions(w)...)
		}
	case map[string]any:
		kind, isCondition := v["type"].(string)
		status, hasStatus := v["status"].(string)
		if isCondition && hasStatus {
			message, _ := v["message"].(string)
			return []condition{{kind, status, message}}
		}
		for _, w := range v {
			found = append(found, conditions(w)...)
		}
	}
	return found
}
