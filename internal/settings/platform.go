package settings

import (
	"regexp"
	"slices"
	"strings"
)

// platformNames are variables that STRICT_ENVIRONMENT accepts although they are not settings. The platform sets them
// for every program, or the operator sets them for libraries in this one.
var platformNames = []string{
	// Shells, container runtimes, base images.
	"PATH", "HOME", "HOSTNAME", "PWD", "OLDPWD", "SHLVL", "SHELL", "TERM", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME",
	"TMPDIR", "_", "container",
	// systemd.
	"INVOCATION_ID", "JOURNAL_STREAM", "SYSTEMD_EXEC_PID", "NOTIFY_SOCKET", "MEMORY_PRESSURE_WATCH",
	"MEMORY_PRESSURE_WRITE",
	// Go's runtime and standard library, and the logger of gRPC.
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR",
	"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy",
	"GRPC_GO_LOG_SEVERITY_LEVEL", "GRPC_GO_LOG_VERBOSITY_LEVEL", "GRPC_GO_LOG_FORMATTER",
	// The usual names of the downward API, from which other variables are made, as in GRPC_HOST=$(POD_IP).
	"POD_NAME", "POD_NAMESPACE", "POD_UID", "POD_IP", "POD_IPS", "HOST_IP", "NODE_NAME", "NODE_IP",
}

// platformPrefixes are prefixes of the variables that shells, Kubernetes, Nomad and clouds set in every container, and
// of those that the SDK of OpenTelemetry reads.
var platformPrefixes = []string{"LC_", "KUBERNETES_", "AWS_", "AZURE_", "ECS_", "GOOGLE_", "NOMAD_", "OTEL_"}

func ofPlatform(name string) bool {
	return slices.Contains(platformNames, name) ||
		slices.ContainsFunc(platformPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// serviceLinks returns the prefixes of the variables that Kubernetes sets for the services of a pod's namespace, unless
// the pod has enableServiceLinks: false. A prefix counts only with a host and a port, so that a misspelt GRCP_PORT does
// not pass as a service named grcp.
func (e environment) serviceLinks() (prefixes []string) {
	for name, host := range e {
		if prefix, ok := strings.CutSuffix(name, "_SERVICE_HOST"); ok && host != "" && e[prefix+"_SERVICE_PORT"] != "" {
			prefixes = append(prefixes, prefix)
		}
	}
	return prefixes
}

// linkName matches the part of a service link's name after the prefix and an underscore.
var linkName = regexp.MustCompile(
	`^(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofServiceLink reports whether Kubernetes sets a variable for a service with one of these prefixes.
func ofServiceLink(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		rest, ok := strings.CutPrefix(name, prefix+"_")
		return ok && linkName.MatchString(rest)
	})
}
