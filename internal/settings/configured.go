package settings

import (
	"net"
	"slices"
	"strings"
)

// orchestrators are variables that Kubernetes, Nomad and Amazon ECS set in every container. An operator who deploys the
// service there has rules.
var orchestrators = []string{"KUBERNETES_SERVICE_HOST", "NOMAD_ALLOC_ID", "ECS_CONTAINER_METADATA_URI",
	"ECS_CONTAINER_METADATA_URI_V4"}

// configured returns, sorted, the variables which show that an operator has configured the service. These are settings
// without the tag trial, misspelt settings, settings of envoyproxy/ratelimit, and variables of orchestrators. An empty
// variable does not count.
func (e environment) configured() (names []string) {
	for name, value := range e {
		switch {
		case value == "" || tried(name, value):
		case slices.Contains(Names(), name), WithoutEffect[name] != "", misspells(name),
			strings.HasPrefix(name, "RUNTIME_"), slices.Contains(orchestrators, name):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// tried reports whether a setting has a value that fits the sample, which is served on loopback only.
func tried(name, value string) bool {
	for _, s := range List() {
		if s.Name == name {
			trial := s.tag.Get("trial")
			return trial == "any" || trial == "loopback" && IsLoopback(value)
		}
	}
	return false
}

// IsLoopback reports whether a host is this machine, as its text says.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
