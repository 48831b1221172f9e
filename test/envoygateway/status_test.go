package envoygateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// answered is a resource with the status that Envoy Gateway gives it.
type answered struct {
	manifest
	conditions []condition
}

// condition is one of the sentences of a status.
type condition struct{ kind, status, message string }

// judge compares what was asked of Envoy Gateway with what it answers, by kinds of resources. The error names each resource that
// it does not want, or says nothing of: a policy or route that is for nothing in particular gets no status.
func judge(asked []manifest, translated map[string]json.RawMessage) error {
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
	for _, m := range asked {
		if !strings.HasPrefix(m.group(), "gateway.") || m["kind"] == "ReferenceGrant" {
			continue // these have no status
		}
		errs = append(errs, answers[m.String()].judge(m.String()))
	}
	return errors.Join(errs...)
}

// judge is an error for a resource that is not in force as it is written.
func (a answered) judge(name string) error {
	if len(a.conditions) == 0 {
		return fmt.Errorf("%s: nothing takes notice of it: does what it refers to exist (targetRefs, parentRefs, gatewayClassName)?", name)
	}
	var errs []error
	for _, c := range a.conditions {
		switch c.kind {
		case "Accepted", "ResolvedRefs", "Programmed":
			if c.status == "True" {
				continue
			}
		case "Overridden": // in part, by the policy of a route; that has a status of its own
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

// conditions finds all conditions in a status: those of a Gateway's listeners, a route's parents and a policy's ancestors are in
// lists of their own.
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
