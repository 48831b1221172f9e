package settings

import (
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// environment holds the variables of the process by name.
type environment map[string]string

func currentEnvironment() environment {
	e := environment{}
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		e[name] = value
	}
	return e
}

// Reasons of several settings without effect.
const (
	noMemcached = "memcached cannot decide exactly and is not supported"
	noWait      = "the service starts without Redis, because STORE_ERROR_POLICY decides"
)

// WithoutEffect has, by name, the settings of envoyproxy/ratelimit that the service ignores, and the reason.
var WithoutEffect = map[string]string{
	"EXPIRATION_JITTER_MAX_SECONDS":                "each key expires as soon as it no longer affects decisions",
	"RUNTIME_WATCH_ROOT":                           "every change of the rule files is noticed",
	"REDIS_PIPELINE_WINDOW":                        "requests share round trips without waiting for each other",
	"REDIS_PIPELINE_LIMIT":                         "requests share round trips without waiting for each other",
	"REDIS_CLUSTER_PIPELINE_PARALLELISM":           "all nodes of a cluster are asked at the same time",
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":                 "a request waits for a connection at most REDIS_TIMEOUT",
	"REDIS_STARTUP_MAX_ELAPSED_TIME":               noWait,
	"MEMCACHE_HOST_PORT":                           noMemcached,
	"MEMCACHE_MAX_IDLE_CONNS":                      noMemcached,
	"MEMCACHE_SRV":                                 noMemcached,
	"MEMCACHE_SRV_REFRESH":                         noMemcached,
	"MEMCACHE_TLS":                                 noMemcached,
	"MEMCACHE_TLS_CACERT":                          noMemcached,
	"MEMCACHE_TLS_CLIENT_CERT":                     noMemcached,
	"MEMCACHE_TLS_CLIENT_KEY":                      noMemcached,
	"MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION":      noMemcached,
	"REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM": "all nodes of a cluster are asked at the same time",
	"REDIS_PERSECOND_PIPELINE_LIMIT":               "requests share round trips without waiting for each other",
	"REDIS_PERSECOND_PIPELINE_WINDOW":              "requests share round trips without waiting for each other",
	"REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR":       "a request waits for a connection at most REDIS_PERSECOND_TIMEOUT",
	"REDIS_STARTUP_INITIAL_INTERVAL":               noWait,
	"REDIS_STARTUP_MAX_INTERVAL":                   noWait,
	"REDIS_CLOSE_CONNECTION_ON_READONLY_ERROR":     "a connection to a replica is always closed",
	"SANITIZE_DESCRIPTOR_METRIC_DOTS":              "names of statistics have the dots of keys and values",
}

// ineffective returns warnings of settings of envoyproxy/ratelimit without effect, and one of all Lookalikes.
func (e environment) ineffective() (fs Findings) {
	for _, name := range slices.Sorted(maps.Keys(e)) {
		why := WithoutEffect[name]
		fs.noEffect(why != "" && e[name] != "", name, ": "+why)
	}
	like := Lookalikes(e)
	for i, name := range like {
		like[i] += suggest.Meant(name, Names()...)
	}
	fs.mistake(len(like) > 0, "", "not settings of this service: "+strings.Join(like, ", "))
	return fs
}

// Lookalikes returns, sorted, the variables that look like settings of this service or of envoyproxy/ratelimit, but are
// none. It leaves out empty variables, and those that platforms and Envoy Gateway set.
func Lookalikes(e environment) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e)), func(name string) bool {
		family := slices.ContainsFunc(families, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		return e[name] == "" || !family && !misspells(name) || e.expected(name) || name == ofEnvoyGateway
	})
}

// families begin the names of settings of envoyproxy/ratelimit. GRPC_ is none: gRPC has others, such as GRPC_TRACE.
var families = []string{"CACHE_KEY_", "CONFIG_", "DOG_STATSD_", "GRPC_CLIENT_TLS_", "GRPC_MAX_", "GRPC_SERVER_",
	"LIMIT_", "LOCAL_CACHE_", "LOG_", "MEMCACHE_", "PROMETHEUS_", "REDIS_", "RESPONSE_", "RUNTIME_", "STATSD_", "STATS_",
	"TRACING_", "USE_", "XDS_CLIENT_"}

// ofEnvoyGateway is a variable that Envoy Gateway sets for its rate limit service, and that no program reads.
const ofEnvoyGateway = "GRPC_SERVER_TLS_CA_CERT"

// misspells reports whether a name is nearly that of a setting with an underscore. Other programs have names like PORT.
func misspells(name string) bool {
	return slices.ContainsFunc(Names(), func(known string) bool {
		return strings.Contains(known, "_") && suggest.Distance(strings.ToUpper(name), known) <= 2
	})
}

// unknownVariables returns the mistakes of STRICT_ENVIRONMENT: variables, also empty ones, that are not expected.
func (e environment) unknownVariables() (mistakes Findings) {
	var unlike Findings
	for _, name := range slices.Sorted(maps.Keys(e)) {
		meant, unknown := suggest.Closest(name, append(Names(), echoAddress)), !e.expected(name)
		mistakes.mistake(unknown && meant != "", name, name+" is not a setting: did you mean "+meant+"?")
		unlike.mistake(unknown && meant == "", name, name+" is not a setting")
	}
	mistakes = append(mistakes, unlike...)
	mistakes.mistake(len(mistakes) > 0, "", "(STRICT_ENVIRONMENT=true refuses unknown variables; "+
		"it accepts those of the platform, such as PATH, HOME and KUBERNETES_SERVICE_HOST; "+
		"STRICT_ENVIRONMENT=false accepts all variables)")
	return mistakes
}

// echoAddress is the setting of `extauthz echo`.
const echoAddress = "ECHO_ADDRESS"

// expected reports whether a variable is a setting of this service or of envoyproxy/ratelimit, or of the platform.
func (e environment) expected(name string) bool {
	return slices.Contains(Names(), name) || name == echoAddress || WithoutEffect[name] != "" || e.ofMogrifier(name) ||
		ofPlatform(name) || e.ofServiceLink(name)
}

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

// platformPrefixes begin the variables that shells, Kubernetes, Nomad and clouds set, and those of OpenTelemetry's SDK.
var platformPrefixes = []string{"LC_", "KUBERNETES_", "AWS_", "AZURE_", "ECS_", "GOOGLE_", "NOMAD_", "OTEL_"}

func ofPlatform(name string) bool {
	return slices.Contains(platformNames, name) ||
		slices.ContainsFunc(platformPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// linkName matches the part of a service link's name after the prefix and an underscore.
var linkName = regexp.MustCompile(
	`^(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// ofServiceLink reports whether Kubernetes sets a variable for a service of the pod's namespace, unless the pod has
// enableServiceLinks: false. A service has a host and a port: a misspelt GRCP_PORT does not pass as one named grcp.
func (e environment) ofServiceLink(name string) bool {
	for i, c := range name {
		service := name[:i] + "_SERVICE_"
		if c == '_' && e[service+"HOST"] != "" && e[service+"PORT"] != "" && linkName.MatchString(name[i+1:]) {
			return true
		}
	}
	return false
}

// orchestrators are set by Kubernetes, Nomad and Amazon ECS, where an operator who deploys the service has rules.
var orchestrators = []string{"KUBERNETES_SERVICE_HOST", "NOMAD_ALLOC_ID", "ECS_CONTAINER_METADATA_URI",
	"ECS_CONTAINER_METADATA_URI_V4"}

// configured returns, sorted, the variables which show that an operator has configured the service: settings without
// the tag trial, misspelt ones, those of envoyproxy/ratelimit, and orchestrators. An empty variable does not count.
func (e environment) configured() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e)), func(name string) bool {
		if e[name] == "" || tried(name, e[name]) {
			return true
		}
		return !slices.Contains(Names(), name) && WithoutEffect[name] == "" && !misspells(name) &&
			!strings.HasPrefix(name, "RUNTIME_") && !slices.Contains(orchestrators, name)
	})
}

// tried reports whether a setting has a value that fits the sample, which is served on loopback only.
func tried(name, value string) bool {
	return slices.ContainsFunc(List(), func(s Setting) bool {
		trial := s.tag.Get("trial")
		return s.Name == name && (trial == "any" || trial == "loopback" && IsLoopback(value))
	})
}

// IsLoopback reports whether a host is this machine, as its text says.
func IsLoopback(host string) bool {
	return host == "localhost" || net.ParseIP(host).IsLoopback()
}
