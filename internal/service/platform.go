package service

import (
	"regexp"
	"slices"
	"strings"
)

// platformNames are variables that are neither settings nor mistakes: the platform sets them for every program, or the operator for the
// libraries in this one.
var platformNames = []string{
	// Shells, container runtimes, base images.
	"PATH", "HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TMPDIR", "_", "container",
	// systemd, of any service.
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE",
	// What Go's runtime and standard library read, and gRPC's logger.
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"GRPC_GO_LOG_SEVERITY_LEVEL", "GRPC_GO_LOG_VERBOSITY_LEVEL", "GRPC_GO_LOG_FORMATTER",
	// The downward API under its usual names: settings are made of them, as in GRPC_HOST=$(POD_IP).
	"POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP", "POD_IPS", "HOST_IP", "NODE_NAME", "NODE_IP",
}

// platformPrefixes begin what shells, Kubernetes, Nomad and the identity webhooks of clouds put into every container.
var platformPrefixes = []string{"LC_", "KUBERNETES_", "AWS_", "AZURE_", "ECS_", "GOOGLE_", "NOMAD_"}

func ofPlatform(name string) bool {
	return slices.Contains(platformNames, name) ||
		slices.ContainsFunc(platformPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// serviceLinks returns the prefixes of the variables that Kubernetes sets for the services of a pod's namespace, unless the pod has
// enableServiceLinks: false. A service has a host and a port, so that a misspelt GRCP_PORT is not taken for a service named grcp.
func (e Environment) serviceLinks() (prefixes []string) {
	for name, host := range e {
		if prefix, ok := strings.CutSuffix(name, "_SERVICE_HOST"); ok && host != "" && e[prefix+"_SERVICE_PORT"] != "" {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// linkName is what follows the prefix and an underscore.
var linkName = regexp.MustCompile(`^(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofServiceLink reports whether a variable is one that Kubernetes sets for a service with one of these prefixes.
func ofServiceLink(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix+"_")
		return ok && linkName.MatchString(rest)
	})
}
