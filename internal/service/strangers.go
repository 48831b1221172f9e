package service

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/extauthz/extauthz/internal/suggest"
)

// mustNotBeIgnored are settings of envoyproxy/ratelimit that this version does not have. An operator who sets one relies on it, so the
// service does not start.
var mustNotBeIgnored = map[string]string{
	"GRPC_SERVER_USE_TLS": "TLS on the gRPC listener is not supported yet; put the service beside Envoy (GRPC_UDS) or behind a mesh",
	"REDIS_PERSECOND":     "a second Redis for limits a second is not supported: all limits are kept in REDIS_URL",
}

// withoutEffect are settings of envoyproxy/ratelimit that change no decision here, and why.
var withoutEffect = map[string]string{
	"USE_STATSD":                              "metrics are at /metrics of the debug port",
	"USE_PROMETHEUS":                          "metrics are at /metrics of the debug port, always",
	"PROMETHEUS_ADDR":                         "metrics are at /metrics of the debug port (DEBUG_HOST, DEBUG_PORT)",
	"PROMETHEUS_PATH":                         "metrics are at /metrics of the debug port",
	"PROMETHEUS_MAPPER_YAML":                  "metrics have their final names",
	"STATSD_HOST":                             "metrics are at /metrics of the debug port",
	"STATSD_PORT":                             "metrics are at /metrics of the debug port",
	"USE_DOG_STATSD":                          "metrics are at /metrics of the debug port",
	"DISABLE_STATS":                           "metrics cost nothing until they are read",
	"NEAR_LIMIT_RATIO":                        "there is no near_limit metric",
	"LOCAL_CACHE_SIZE_IN_BYTES":               "there is no cache to size",
	"EXPIRATION_JITTER_MAX_SECONDS":           "keys expire when they no longer matter",
	"STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT": "a denied request charges nothing anyway (COMPATIBILITY=strict: it does)",
	"RUNTIME_WATCH_ROOT":                      "a change of any kind is noticed",
	"REDIS_PIPELINE_WINDOW":                   "requests share round trips without waiting for each other",
	"REDIS_PIPELINE_LIMIT":                    "requests share round trips without waiting for each other",
	"REDIS_CLUSTER_PIPELINE_PARALLELISM":      "it belongs to REDIS_TYPE=CLUSTER",
	"REDIS_SENTINEL_AUTH":                     "it belongs to REDIS_TYPE=SENTINEL",
	"REDIS_HEALTH_CHECK_ACTIVE_CONNECTION":    "the service stays healthy without Redis, since STORE_ERROR_POLICY answers",
	"REDIS_POOL_ON_EMPTY_BEHAVIOR":            "a request never waits for a connection longer than REDIS_TIMEOUT",
	"REDIS_STARTUP_MAX_ELAPSED_TIME":          "the service starts without Redis, since STORE_ERROR_POLICY answers",
	"TRACING_ENABLED":                         "tracing is not supported yet",
}

// ineffective returns a warning for each variable that is set and has no effect: settings of envoyproxy/ratelimit, and names that are
// nearly a setting.
func (e Environment) ineffective() (warnings []string) {
	known := settingNames()
	for name, value := range e {
		if slices.Contains(known, name) || value == "" {
			continue
		}
		if why, ok := withoutEffect[name]; ok {
			warnings = append(warnings, fmt.Sprintf("%s has no effect: %s", name, why))
			continue
		}
		if meant := nearSetting(name, known); meant != "" {
			warnings = append(warnings, fmt.Sprintf("%s is not a setting: did you mean %s?", name, meant))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// nearSetting returns the setting that an unknown name is a misspelling of, "" for none. Settings without an underscore are left out,
// because names of other programs are too near to them.
func nearSetting(name string, known []string) string {
	for _, k := range known {
		if strings.Contains(k, "_") && suggest.Distance(strings.ToUpper(name), k) <= 2 {
			return k
		}
	}
	return ""
}

// ofRatelimit reports whether a name is a setting of envoyproxy/ratelimit that is none here.
func ofRatelimit(name string) bool { return withoutEffect[name] != "" || mustNotBeIgnored[name] != "" }

// strangers returns the mistakes of STRICT_ENVIRONMENT: variables that are neither settings, of this service or of envoyproxy/ratelimit, nor
// of the platform. An empty variable is one, too.
func (e Environment) strangers() (mistakes []error) {
	known, links := append(settingNames(), echoVariable), e.serviceLinks()
	for _, name := range slices.Sorted(maps.Keys(e)) {
		// ineffective and checkTogether report settings of envoyproxy/ratelimit.
		if slices.Contains(known, name) || ofRatelimit(name) || ofPlatform(name) || ofServiceLink(name, links) {
			continue
		}
		guess := ""
		if meant := suggest.Closest(name, known); meant != "" {
			guess = fmt.Sprintf(": did you mean %s?", meant)
		}
		mistakes = append(mistakes, fmt.Errorf("%s is not a setting%s", name, guess))
	}
	if len(mistakes) > 0 {
		mistakes = append(mistakes, errors.New("(STRICT_ENVIRONMENT=true refuses variables that are not known; those of the platform, such as PATH, HOME and "+
			"KUBERNETES_SERVICE_HOST, are fine; STRICT_ENVIRONMENT=false lets all others pass, too)"))
	}
	return mistakes
}
